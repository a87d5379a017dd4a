#include "train/pace.hpp"

#include <cmath>
#include <functional>

#include "ringtrain/base/philox.hpp"
#include "support/catch.hpp"

using namespace ringtrain;

namespace {

using News = Pace::News;

struct Told {
  int slow = 0, recovered = 0;
  double slow_after_s = 0;  // the first time
};

// Steps for `seconds`; `step_s` of each may depend on how much time has passed.
Told run(Pace& pace, double seconds, const std::function<double(double)>& step_s,
         bool excused = false) {
  Told told;
  for (double now = 0; now < seconds;) {
    const double step = step_s(now);
    now += step;
    const News news = pace.step(step, excused);
    if (news == News::slow && told.slow++ == 0) told.slow_after_s = now;
    told.recovered += news == News::recovered;
  }
  return told;
}

std::function<double(double)> steady(double step_s) {
  return [=](double) { return step_s; };
}

void settle(Pace& pace, double step_s) {
  const Told told = run(pace, std::max(60.0, 60 * step_s), steady(step_s));
  REQUIRE(told.slow == 0);
}

}  // namespace

TEST_CASE("pace: a fall of more than a fifth is told once, after 5 s and 20 steps, and its end") {
  const double step_s = GENERATE(0.001, 0.1, 3.0);
  CAPTURE(step_s);
  Pace pace;
  settle(pace, step_s);
  CHECK(pace.usual_s() == Approx(step_s));

  const Told told = run(pace, std::max(60.0, 60 * step_s), steady(1.4 * step_s));
  CHECK(told.slow == 1);
  CHECK(told.slow_after_s >= 0.9 * Pace::slow_s);
  CHECK(told.slow_after_s >= 0.9 * Pace::slow_steps * 1.4 * step_s);
  CHECK(told.slow_after_s <= std::max(8.0, 30 * 1.4 * step_s));
  CHECK(told.recovered == 0);
  CHECK(pace.usual_s() == Approx(step_s));

  const Told after = run(pace, std::max(60.0, 60 * step_s), steady(step_s));
  CHECK(after.slow == 0);
  CHECK(after.recovered == 1);
}

TEST_CASE("pace: says for how long steps were slow, and how slow they were") {
  Pace pace;
  settle(pace, 0.01);
  run(pace, 30, steady(0.02));
  CHECK(pace.slow_for_s() == Approx(30).margin(1));
  CHECK(pace.lately_s() == Approx(0.02));
  run(pace, 10, steady(0.01));
  CHECK(pace.slow_for_s() == Approx(30).margin(2));
}

TEST_CASE("pace: a smaller fall is none") {
  Pace pace;
  settle(pace, 0.01);
  CHECK(run(pace, 120, steady(0.0122)).slow == 0);
}

TEST_CASE("pace: an hour of noise is no fall") {
  const double noise = GENERATE(0.05, 0.15, 0.4);
  CAPTURE(noise);
  Pace pace;
  Philox random(7, Purpose::synthetic);
  double level = 1, until = 0;
  const auto noisy = [&](double now) {
    if (now >= until) {  // what disturbs a host lasts for a while
      level = std::exp(noise * random.normal());
      until = now + random.uniform(0.5, 2);
    }
    return 0.05 * level * std::exp(noise * random.normal());
  };

  CHECK(run(pace, 3600, noisy).slow == 0);
}

TEST_CASE("pace: one long step, or a few, is none") {
  Pace pace;
  settle(pace, 0.01);
  CHECK(pace.step(14, false) != News::slow);
  CHECK(run(pace, 60, steady(0.01)).slow == 0);
  CHECK(run(pace, 60, [n = 0](double) mutable { return ++n % 500 == 0 ? 1.0 : 0.01; }).slow == 0);
}

TEST_CASE("pace: bursts that make for a fall are one") {
  Pace pace;
  settle(pace, 0.01);
  CHECK(run(pace, 30, [n = 0](double) mutable { return ++n % 20 == 0 ? 0.2 : 0.01; }).slow == 1);
}

TEST_CASE("pace: a save that is under way excuses slow steps, for half a minute") {
  Pace pace;
  settle(pace, 0.01);
  CHECK(run(pace, 25, steady(0.03), true).slow == 0);
  CHECK(run(pace, 30, steady(0.01)).slow == 0);
  CHECK(run(pace, 60, steady(0.03), true).slow == 1);
}

TEST_CASE("pace: a second fall is told, too") {
  Pace pace;
  settle(pace, 0.01);
  CHECK(run(pace, 30, steady(0.02)).slow == 1);
  CHECK(run(pace, 30, steady(0.03)).slow == 1);
  CHECK(run(pace, 30, steady(0.01)).recovered == 1);
  CHECK(run(pace, 30, steady(0.02)).slow == 1);
}

TEST_CASE("pace: before it knows what is usual, it tells nothing") {
  Pace pace;
  CHECK(run(pace, 2, steady(0.01)).slow == 0);
  CHECK(run(pace, 3, steady(0.05)).slow == 0);
}
