#include "ringtrain/monitor/slowdown/slowdown_detector.hpp"

#include <cmath>
#include <functional>

#include "ringtrain/base/philox.hpp"
#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::monitor;

namespace {

using Change = SlowdownDetector::Change;
using Reference = SlowdownDetector::Reference;

struct Told {
  int slow = 0, recovered = 0;
  double slow_after_s = 0;  // the first time
};

// Steps for `seconds`; `step_s` of each may depend on how much time has passed.
Told run(SlowdownDetector& detector, double seconds, const std::function<double(double)>& step_s,
         bool excused = false) {
  Told told;
  for (double now = 0; now < seconds;) {
    const double step = step_s(now);
    now += step;
    const Change change = detector.step(step, excused);
    if (change == Change::slower && told.slow++ == 0) told.slow_after_s = now;
    told.recovered += change == Change::recovered;
  }
  return told;
}

std::function<double(double)> steady(double step_s) {
  return [=](double) { return step_s; };
}

void settle(SlowdownDetector& detector, double step_s) {
  const Told told = run(detector, std::max(60.0, 60 * step_s), steady(step_s));
  REQUIRE(told.slow == 0);
}

}  // namespace

TEST_CASE(
    "slow-downs: a fall of more than a fifth is told once, after 5 s and 20 steps, and its end") {
  const double step_s = GENERATE(0.001, 0.1, 3.0);
  CAPTURE(step_s);
  SlowdownDetector detector;
  settle(detector, step_s);

  const Told told = run(detector, std::max(60.0, 60 * step_s), steady(1.4 * step_s));
  CHECK(told.slow == 1);
  CHECK(told.slow_after_s >= 0.9 * SlowdownDetector::sudden_s);
  CHECK(told.slow_after_s >= 0.9 * SlowdownDetector::sudden_steps * 1.4 * step_s);
  CHECK(told.slow_after_s <= std::max(8.0, 30 * 1.4 * step_s));
  CHECK(told.recovered == 0);
  CHECK(detector.reference_s() == Approx(step_s));

  const Told after = run(detector, std::max(60.0, 60 * step_s), steady(step_s));
  CHECK(after.slow == 0);
  CHECK(after.recovered == 1);
}

TEST_CASE("slow-downs: says for how long steps were slow, and how slow they were") {
  SlowdownDetector detector;
  settle(detector, 0.01);
  run(detector, 30, steady(0.02));
  CHECK(detector.recent_s() == Approx(0.02));
  run(detector, 10, steady(0.01));
  CHECK(detector.slow_for_s() == Approx(30).margin(2));
}

TEST_CASE("slow-downs: a smaller fall is none") {
  SlowdownDetector detector;
  settle(detector, 0.01);
  CHECK(run(detector, 120, steady(0.0118)).slow == 0);
}

TEST_CASE("slow-downs: an hour of noise is no fall") {
  const double noise = GENERATE(0.05, 0.15, 0.4);
  CAPTURE(noise);
  SlowdownDetector detector;
  Philox random(7, Purpose::synthetic);
  double level = 1, until = 0;
  const auto noisy = [&](double now) {
    if (now >= until) {  // what disturbs a host lasts for a while
      level = std::exp(noise * random.normal());
      until = now + random.uniform(0.5, 2);
    }
    return 0.05 * level * std::exp(noise * random.normal());
  };

  CHECK(run(detector, 3600, noisy).slow == 0);
}

TEST_CASE("slow-downs: one long step, or a few, is none") {
  SlowdownDetector detector;
  settle(detector, 0.01);
  CHECK(detector.step(14, false) != Change::slower);
  CHECK(run(detector, 60, steady(0.01)).slow == 0);
  CHECK(run(detector, 60, [n = 0](double) mutable { return ++n % 500 == 0 ? 1.0 : 0.01; }).slow ==
        0);
}

TEST_CASE("slow-downs: bursts that make for a fall are one") {
  SlowdownDetector detector;
  settle(detector, 0.01);
  CHECK(run(detector, 30, [n = 0](double) mutable { return ++n % 20 == 0 ? 0.2 : 0.01; }).slow ==
        1);
}

TEST_CASE("slow-downs: a save that is under way excuses slow steps, for half a minute") {
  SlowdownDetector detector;
  settle(detector, 0.01);
  CHECK(run(detector, 25, steady(0.03), true).slow == 0);
  CHECK(run(detector, 30, steady(0.01)).slow == 0);
  CHECK(run(detector, 60, steady(0.03), true).slow == 1);
}

TEST_CASE("slow-downs: a second fall is told, too") {
  SlowdownDetector detector;
  settle(detector, 0.01);
  CHECK(run(detector, 30, steady(0.02)).slow == 1);
  CHECK(run(detector, 30, steady(0.03)).slow == 1);
  CHECK(run(detector, 30, steady(0.01)).recovered == 1);
  CHECK(run(detector, 30, steady(0.02)).slow == 1);
}

TEST_CASE("slow-downs: before it knows what is usual, it tells nothing") {
  SlowdownDetector detector;
  CHECK(run(detector, 2, steady(0.01)).slow == 0);
  CHECK(run(detector, 3, steady(0.05)).slow == 0);
}

TEST_CASE("slow-downs: a fall is told when it has come to a quarter, however slowly it came") {
  const double minutes = GENERATE(1, 8, 10, 15, 30, 120, 720);
  CAPTURE(minutes);
  SlowdownDetector detector;
  run(detector, 600, steady(0.36));
  const double fall_s = 60 * minutes;
  // From 0.36 s to 1.1 s, as in the complaint.
  const auto falling = [=](double now) {
    return 0.36 + (1.1 - 0.36) * std::min(1.0, now / fall_s);
  };
  const double quarter_s = fall_s * 0.25 * 0.36 / (1.1 - 0.36);

  const Told told = run(detector, fall_s + 300, falling);
  CHECK(told.slow_after_s < quarter_s + 60);
  CHECK(told.slow_after_s > 0.6 * quarter_s);
  CHECK(told.slow >= 1);
  CHECK(told.slow <= 6);  // a line for each further quarter
  CHECK(told.recovered == 0);
  if (minutes >= 30) {
    CHECK(detector.reference() == Reference::best);
    CHECK(detector.reference_s() == Approx(0.36).epsilon(0.01));
  }

  CHECK(run(detector, 120, steady(0.36)).recovered == 1);
}

// As of a process that is stopped again and again: most steps take as long as before.
TEST_CASE("slow-downs: what is slow in a part of the time is told, however slowly it came") {
  constexpr double step_s = 0.01, cycle_s = 2, slow_s = 0.9, most = 4;
  const double fall_s = GENERATE(60.0, 600.0, 1800.0);
  CAPTURE(fall_s);
  SlowdownDetector detector;
  settle(detector, step_s);
  run(detector, 180, steady(step_s));
  const auto bursts = [=](double now) {
    const double times = 1 + (most - 1) * std::min(1.0, now / fall_s);
    return std::fmod(now, cycle_s) < slow_s ? times * step_s : step_s;
  };
  // When steps take `slower` times as long, on the whole.
  const auto reaches_s = [=](double slower) {
    const double times = slow_s / (cycle_s / slower - (cycle_s - slow_s));
    return fall_s * (times - 1) / (most - 1);
  };

  const Told told = run(detector, fall_s + 300, bursts);
  CHECK(told.slow >= 1);
  CHECK(told.slow_after_s < reaches_s(1.37) + 60);
  CHECK(told.slow_after_s > reaches_s(1.2));
  CHECK(told.recovered == 0);
  if (fall_s > 60) {
    CHECK(detector.reference() == Reference::stalls);
    CHECK(detector.reference_s() < 1.07 * step_s);
  }

  const Told over = run(detector, 300, steady(step_s));
  CHECK(over.slow == 0);
  CHECK(over.recovered == 1);
}

// Stopped for so long of each two or four seconds, within one step.
TEST_CASE("slow-downs: short stops that come again and again are told within a minute or two") {
  const auto [stop_s, cycle_s] =
      GENERATE(std::pair(0.4, 1.5), std::pair(0.9, 2.0), std::pair(1.4, 4.0));
  CAPTURE(stop_s, cycle_s);
  SlowdownDetector detector;
  run(detector, 300, steady(0.01));
  double next = 0;
  const Told told = run(detector, 4000, [&, stop = stop_s, cycle = cycle_s](double now) {
    if (now < next) return 0.01;
    next = now + cycle;
    return 0.01 + stop;
  });
  CHECK(told.slow >= 1);
  CHECK(told.slow <= 2);  // once more for a further quarter
  CHECK(told.slow_after_s < 120);
  CHECK(told.recovered == 0);
  CHECK(run(detector, 300, steady(0.01)).recovered == 1);
}

TEST_CASE("slow-downs: a run whose steps are uneven from the start is none") {
  const auto [step_s, each, late_s] =
      GENERATE(table<double, int, double>({{1, 10, 3}, {0.5, 10, 2}, {0.4, 8, 1.2}}));
  CAPTURE(step_s);
  SlowdownDetector detector;
  int step = 0;
  const Told told = run(detector, 7200, [&, s = step_s, n = each, late = late_s](double) {
    return ++step % n == 0 ? s + late : s;
  });
  CHECK(told.slow == 0);
}

TEST_CASE("slow-downs: ten slow steps on end, once, are none") {
  const double step_s = GENERATE(0.1, 1.0, 3.0);
  CAPTURE(step_s);
  SlowdownDetector detector;
  run(detector, 1200, steady(step_s));
  CHECK(run(detector, 30 * step_s, steady(3 * step_s)).slow == 0);
  CHECK(run(detector, 600, steady(step_s)).slow == 0);
}

TEST_CASE("slow-downs: says for how long steps have been falling") {
  SlowdownDetector detector;
  run(detector, 600, steady(0.1));
  run(detector, 3600, [](double now) { return 0.1 * (1 + now / 7200); });
  // Past 1.1 times since 12 minutes after the fall began.
  CHECK(detector.gradual().falling_for_s() == Approx(2880).margin(120));
}

TEST_CASE("slow-downs: what stays slow is told once more, and is the reference from then on") {
  SlowdownDetector detector;
  run(detector, 600, steady(0.1));
  REQUIRE(run(detector, 60, steady(0.15)).slow == 1);
  int settled = 0;
  for (int step = 0; step < 40'000; ++step)
    settled += detector.step(0.15, false) == Change::settled;
  CHECK(settled == 1);
  CHECK(detector.reference_s() == Approx(0.1));
  CHECK(detector.recent_s() == Approx(0.15));

  CHECK(run(detector, 60, steady(0.2)).slow == 1);
  CHECK(detector.reference_s() == Approx(0.15));
  CHECK(run(detector, 60, steady(0.15)).recovered == 1);
  // The pace before is not forgotten either.
  CHECK(run(detector, 300, steady(0.1)).recovered == 1);
  CHECK(detector.reference_s() == Approx(0.1));
  CHECK(detector.slow_for_s() > 3600);
}

TEST_CASE("slow-downs: a run that is slower from the start than was expected is told once") {
  SlowdownDetector detector;
  detector.expect(0.1);
  CHECK(run(detector, 300, steady(0.12)).slow == 0);
  SlowdownDetector slow;
  slow.expect(0.1);
  const Told told = run(slow, 300, steady(0.14));
  CHECK(told.slow == 1);
  CHECK(told.slow_after_s < 150);
  CHECK(slow.reference() == Reference::expected);
  CHECK(run(slow, 30, steady(0.2)).slow == 1);  // which hides nothing that comes later
  CHECK(run(slow, 30, steady(0.14)).recovered == 1);
  CHECK(run(slow, 300, steady(0.1)).recovered == 1);
  CHECK(slow.reference() == Reference::expected);
  SlowdownDetector for_good;
  for_good.expect(0.1);
  CHECK(run(for_good, 3500, steady(0.14)).slow == 1);
  int settled = 0;
  for (int step = 0; step < 2000; ++step) settled += for_good.step(0.14, false) == Change::settled;
  CHECK(settled == 1);
  CHECK(for_good.reference() == Reference::expected);
  SlowdownDetector fast;  // a slower expectation is none
  fast.expect(0.2);
  run(fast, 600, steady(0.1));
  CHECK(run(fast, 60, steady(0.14)).slow == 1);
  CHECK(fast.reference_s() == Approx(0.1));
}

TEST_CASE("slow-downs: sudden ones are told during a gradual one, each with its end") {
  SlowdownDetector detector;
  run(detector, 600, steady(0.1));
  REQUIRE(run(detector, 1800, [](double now) { return 0.1 * (1 + 0.3 * now / 1800); }).slow == 1);
  run(detector, 120, steady(0.13));
  for (int i = 0; i < 2; ++i) {
    const Told told = run(detector, 60, steady(0.26));
    CHECK(told.slow == 1);
    CHECK(detector.reference() == Reference::recent);
    CHECK(run(detector, 120, steady(0.13)).recovered == 1);
  }
  CHECK(run(detector, 120, steady(0.1)).recovered == 1);
  CHECK(detector.reference() == Reference::best);
}

TEST_CASE("slow-downs: a fast beginning is no reference") {
  SlowdownDetector detector;
  run(detector, 40, steady(0.1));
  CHECK(run(detector, 3600, steady(0.124)).slow == 0);
}

TEST_CASE("slow-downs: steps of 20 s are judged, too") {
  SlowdownDetector detector;
  run(detector, 7200, steady(20));
  const Told told = run(detector, 1800, steady(30));
  CHECK(told.slow == 1);
  CHECK(told.slow_after_s < 25 * 30);
  int settled = 0;
  for (int step = 0; step < 600; ++step) settled += detector.step(30, false) == Change::settled;
  CHECK(settled == 1);
}

TEST_CASE("slow-downs: a slow one after a sudden one that is over is told, too") {
  SlowdownDetector detector;
  Philox random(7, Purpose::synthetic);
  const auto noisy = [&](double step_s) { return step_s * std::exp(0.1 * random.normal()); };
  run(detector, 15, [&](double) { return noisy(0.035); });
  REQUIRE(run(detector, 6, [&](double) { return noisy(0.09); }).slow == 1);
  REQUIRE(run(detector, 10, [&](double) { return noisy(0.035); }).recovered == 1);

  const Told told =
      run(detector, 60, [&](double now) { return noisy(0.035 * std::pow(2.7, now / 60)); });
  CHECK(told.slow >= 1);
  CHECK(told.slow_after_s < 45);
}

TEST_CASE("slow-downs: what comes and goes is told twice, then as one, and when it no longer does",
          "[unsanitized]") {
  SlowdownDetector detector;
  settle(detector, 0.1);
  Told told;
  for (int i = 0; i < 30; ++i) {
    const Told slow = run(detector, 60, steady(0.2)), normal = run(detector, 90, steady(0.1));
    told.slow += slow.slow;
    told.recovered += normal.recovered;
    if (i == 1) CHECK(detector.times().count == 0);
    if (i == 2) CHECK(detector.times().count == 3);
    if (i == 2) CHECK(detector.times().since_s == Approx(305).margin(20));
  }
  CHECK(told.slow == 3);
  CHECK(told.recovered == 2);

  SECTION("which is told when it is over") {
    CHECK(run(detector, 480, steady(0.1)).recovered == 0);
    CHECK(run(detector, 60, steady(0.1)).recovered == 1);
    CHECK(detector.times().count == 30);
    CHECK(detector.times().slow_s == Approx(30 * 60).epsilon(0.1));
    CHECK(detector.recent_s() == Approx(0.1));
    run(detector, 900, steady(0.1));

    // When it comes again, it is the same one, and gone after twice that time.
    CHECK(run(detector, 60, steady(0.2)).slow == 1);
    CHECK(detector.times().count == 31);
    run(detector, 90, steady(0.1));
    CHECK(run(detector, 60, steady(0.2)).slow == 0);
    CHECK(run(detector, 1080, steady(0.1)).recovered == 0);
    CHECK(run(detector, 180, steady(0.1)).recovered == 1);
    CHECK(detector.times().count == 32);
  }
  SECTION("and is forgotten a day after it was over") {
    CHECK(run(detector, 700, steady(0.1)).recovered == 1);
    run(detector, 24 * 3600, steady(0.1));
    CHECK(run(detector, 60, steady(0.2)).slow == 1);
    CHECK(detector.times().count == 0);
    CHECK(run(detector, 60, steady(0.1)).recovered == 1);
    CHECK(run(detector, 60, steady(0.2)).slow == 1);
  }
  SECTION("what is worse is told all the same") {
    CHECK(run(detector, 60, steady(0.24)).slow == 0);
    CHECK(run(detector, 60, steady(0.1)).recovered == 0);
    CHECK(run(detector, 60, steady(0.27)).slow == 1);
    CHECK(detector.recent_s() == Approx(0.27).epsilon(0.1));
    CHECK(run(detector, 60, steady(0.1)).recovered == 0);
  }
  SECTION("and so is what stays") {
    CHECK(run(detector, 600, steady(0.2)).slow == 1);
    CHECK(run(detector, 60, steady(0.1)).recovered == 1);
    CHECK(run(detector, 540, steady(0.2)).slow == 0);  // the next one for twice as long
    CHECK(run(detector, 120, steady(0.2)).slow == 1);
    CHECK(run(detector, 60, steady(0.1)).recovered == 1);
  }
}

TEST_CASE("slow-downs: stalls that come again and again are told, and when they no longer do") {
  SlowdownDetector detector;
  const double step_s = GENERATE(0.01, 0.4);
  CAPTURE(step_s);
  run(detector, 600, steady(step_s));
  // A third of the time, in two or three stalls a minute.
  const double each_s = GENERATE(20.0, 30.0);
  double next = 0;
  const auto stalling = [&](double now) {
    if (now < next) return step_s;
    next = now + each_s;
    return each_s / 3;
  };
  const Told told = run(detector, 600, stalling);
  CHECK(told.slow == 1);
  CHECK(told.slow_after_s < 120);
  CHECK(detector.reference() == Reference::stalls);
  CHECK(detector.reference_s() == Approx(step_s).epsilon(0.02));
  CHECK(detector.recent_s() >= 1.25 * step_s);
  CHECK(detector.stalls().stalls() >= 3);
  CHECK(told.recovered == 0);
  CHECK(run(detector, 180, steady(step_s)).recovered == 1);
}

TEST_CASE("slow-downs: two long stalls are none, and a sudden slow-down is no row of stalls") {
  SlowdownDetector detector;
  run(detector, 600, steady(0.4));
  CHECK(run(detector, 120, [](double now) {
          return now == 0 || (now > 60 && now < 61) ? 20.0 : 0.4;
        }).slow == 0);
  run(detector, 300, steady(0.4));
  const Told told = run(detector, 300, steady(4));
  CHECK(told.slow == 1);
  CHECK(detector.reference() == Reference::recent);
  CHECK(run(detector, 600, steady(0.4)).slow == 0);
}

TEST_CASE("slow-downs: in the first two minutes the first seconds are the reference") {
  SlowdownDetector detector;
  // So uneven that no sudden change stands out.
  const auto uneven = [](double now) { return std::fmod(now, 4) < 2 ? 0.014 : 0.008; };
  REQUIRE(run(detector, 20, uneven).slow == 0);

  const Told told = run(
      detector, 80, [&](double now) { return uneven(now) * (1 + 1.6 * std::min(1.0, now / 60)); });
  CHECK(told.slow >= 1);
  CHECK(detector.reference() == Reference::best);
  CHECK(run(detector, 60, uneven).recovered == 1);
}

TEST_CASE("slow-downs: what slows down in the first two minutes and stays has a true reference") {
  SlowdownDetector detector;
  REQUIRE(run(detector, 15, steady(0.1)).slow == 0);
  REQUIRE(run(detector, 95, [](double now) { return 0.1 + 0.05 * std::min(1.0, now / 80); }).slow ==
          1);
  int settled = 0, recovered = 0;
  for (int step = 0; step < 40'000; ++step) {
    const Change change = detector.step(0.15, false);
    if (change == Change::settled) CHECK(detector.reference_s() == Approx(0.1).epsilon(0.05));
    settled += change == Change::settled;
    recovered += change == Change::recovered;
  }
  CHECK(settled == 1);
  CHECK(recovered == 0);
  CHECK(run(detector, 300, steady(0.1)).recovered == 1);
}

TEST_CASE("slow-downs: of a gradual one during a sudden one, no number is made up") {
  SlowdownDetector detector;
  run(detector, 700, steady(0.1));
  const auto check = [&](double seconds, double step_s) {
    for (auto steps = std::lround(seconds / step_s); steps > 0; --steps)
      if (const Change change = detector.step(step_s, false);
          change == Change::slower || change == Change::recovered) {
        CHECK(detector.recent_s() > 0.05);
        CHECK(detector.reference_s() > 0.05);
      }
  };
  const auto ramp = [&] {  // too slow for a sudden one
    for (double now = 0; now < 90;) {
      const double step_s = 0.1 * (1 + 0.4 * now / 90);
      now += step_s;
      detector.step(step_s, false);
    }
  };
  for (int i = 0; i < 2; ++i) {
    ramp();
    check(120, 0.1);
  }
  ramp();
  check(240, 0.14);
  check(400, 0.4);
  check(700, 0.1);
}
