#include "ringtrain/monitor/slowdown/speed_rule.hpp"

#include <functional>
#include <vector>

#include "support/catch.hpp"

using namespace ringtrain::monitor;

namespace {

using Change = SpeedRule::Change;

struct Told {
  Change change;
  double at_s;  ///< since the run began
};

// Steps of a run, and what was told of it.
class Run {
 public:
  explicit Run(double below = 0.8) : rule_(below) {}

  /// For `seconds`; how long a step takes may depend on how much of them has passed.
  std::vector<Told> run(double seconds, const std::function<double(double)>& step_s) {
    std::vector<Told> told;
    for (const double end = now_ + seconds; now_ < end;) {
      const double step = step_s(now_ - end + seconds);
      now_ += step;
      if (const Change change = rule_.step(step, 1); change != Change::none)
        told.push_back({change, now_});
    }
    return told;
  }
  std::vector<Told> run(double seconds, double step_s) {
    return run(seconds, [=](double) { return step_s; });
  }
  double now() const { return now_; }
  const SpeedRule& rule() const { return rule_; }

 private:
  SpeedRule rule_;
  double now_ = 0;
};

// The seconds of a step of the first complaint, which tells of ten at a time.
constexpr std::array complaint = {0.361, 0.336, 0.346, 0.371, 0.334, 0.276, 0.356,
                                  0.358, 0.357, 0.357, 0.352, 0.311, 0.295, 0.364,
                                  0.358, 0.388, 0.385, 0.418, 0.477, 1.071, 1.070,
                                  1.104, 1.117, 1.072, 1.111, 1.097, 1.074, 1.108};

}  // namespace

TEST_CASE("slow-downs: the first complaint is told within a minute, once, and so is its end") {
  Run run;
  double told_after_s = -1, fell_s = 0;
  for (std::size_t i = 0; i < complaint.size(); ++i) {
    if (complaint[i] > 0.36 / 0.8 && fell_s == 0) fell_s = run.now();
    for (const Told& told : run.run(10 * complaint[i] - 1e-9, complaint[i])) {
      CHECK(told.change == Change::told);
      CHECK(told_after_s < 0);
      told_after_s = told.at_s - fell_s;
    }
  }
  CHECK(told_after_s >= 0);
  CHECK(told_after_s < 60);
  CHECK(run.rule().reference() == Approx(1 / 0.33).epsilon(0.1));
  CHECK(run.rule().compared_share() == Approx(0.33).epsilon(0.1));
  CHECK(run.run(3600, 1.08).empty());

  const double healed_s = run.now();
  const auto told = run.run(900, 0.36);
  REQUIRE(told.size() == 1);
  CHECK(told[0].change == Change::ended);
  CHECK(told[0].at_s - healed_s == Approx(300).margin(40));
  CHECK(run.rule().fall().seconds == Approx(healed_s - fell_s).margin(15));
}

TEST_CASE("slow-downs: a fall is told once, within a minute, and its end, whatever a step takes") {
  const double step_s = GENERATE(0.001, 0.1, 1.0, 4.0);
  const double share = GENERATE(0.2, 0.4, 0.7, 0.78);
  CAPTURE(step_s, share);
  const double longer = std::max(1.0, step_s / 1.5);
  Run run;
  REQUIRE(run.run(120 * longer, step_s).empty());

  const auto told = run.run(200 * longer / share, step_s / share);
  REQUIRE(told.size() == 1);
  CHECK(told[0].change == Change::told);
  CHECK(told[0].at_s - 120 * longer <= 63 * longer / share);
  if (share < 0.6 && step_s < 0.5) CHECK(told[0].at_s - 120 < 16);
  CHECK(run.rule().compared_share() == Approx(share).epsilon(0.02));

  const auto after = run.run(500 * longer, step_s);
  REQUIRE(after.size() == 1);
  CHECK(after[0].change == Change::ended);
  const SpeedSpan& fall = run.rule().fall();
  CHECK(fall.seconds == Approx(200 * longer / share).epsilon(0.05));
  CHECK(fall.speed() * step_s == Approx(share).epsilon(0.05));
}

TEST_CASE("slow-downs: a smaller fall is none, and nothing is where nothing is asked for") {
  const bool asked = GENERATE(true, false);
  Run run(asked ? 0.8 : 0);
  CHECK(run.run(300, 0.01).empty());
  CHECK(run.run(600, asked ? 0.0122 : 0.05).empty());
  CHECK(run.rule().share().value() == Approx(asked ? 1 / 1.22 : 0.2).epsilon(0.01));
}

TEST_CASE("slow-downs: another share may be asked for") {
  Run run(0.5);
  run.run(120, 0.01);
  CHECK(run.run(300, 0.019).empty());
  CHECK(run.run(100, 0.021).size() == 1);
}

TEST_CASE("slow-downs: a fall within a fall is told again") {
  Run run;
  run.run(120, 0.01);
  REQUIRE(run.run(300, 0.014).size() == 1);
  CHECK(run.run(300, 0.015).empty());
  const auto told = run.run(300, 0.02);
  REQUIRE(told.size() == 1);
  CHECK(told[0].change == Change::again);
  CHECK(told[0].at_s - 720 <= 62);
}

TEST_CASE("slow-downs: one stall, burst or fall that is over hides no fall that stays") {
  struct Case {
    double burst_s, burst_share, pause_s;
  };
  const auto [burst_s, burst_share, pause_s] = GENERATE(values<Case>({{10, 0.005, 60},
                                                                      {10, 0.005, 280},
                                                                      {12, 0.3, 60},
                                                                      {12, 0.3, 280},
                                                                      {300, 0.3, 200},
                                                                      {300, 0.5, 250}}));
  const double share = GENERATE(0.3, 0.5, 0.6);
  CAPTURE(burst_s, burst_share, pause_s, share);
  Run run;
  run.run(300, 0.05);
  REQUIRE(run.run(burst_s, std::min(0.05 / burst_share, burst_s)).size() == 1);
  REQUIRE(run.run(pause_s, 0.05).empty());

  const double fell_s = run.now();
  const auto told = run.run(7200, 0.05 / share);
  REQUIRE(told.size() == 1);
  CHECK(told[0].change == Change::again);
  CHECK(told[0].at_s - fell_s <= 60);
}

TEST_CASE("slow-downs: the end counts all falls since the first") {
  Run run;
  run.run(300, 0.01);
  REQUIRE(run.run(1200, 0.01 / 0.7).size() == 1);
  REQUIRE(run.run(90, 0.01 / 0.45).size() == 1);
  const auto told = run.run(600, 0.01);
  REQUIRE(told.size() == 1);
  CHECK(told[0].change == Change::ended);
  CHECK(run.rule().fall().seconds == Approx(1290).margin(10));
}

TEST_CASE("slow-downs: stalls count, however long they are and however far apart") {
  const auto [work_s, stall_s] = GENERATE(table<double, double>(
      {{1, 1}, {5, 5}, {0.3, 0.2}, {20, 20}, {60, 30}, {15, 5}, {2, 1}, {13.2, 3.8}}));
  CAPTURE(work_s, stall_s);
  Run run;
  run.run(300, 0.05);
  double worked_s = 0;
  const auto stalling = [&, work_s = work_s, stall_s = stall_s](double) {
    if (worked_s < work_s) {
      worked_s += 0.05;
      return 0.05;
    }
    worked_s = 0;
    return stall_s;
  };
  const auto told = run.run(1200, stalling);
  const std::size_t most = stall_s < 30 ? 1 : 3;  // which seem to be stalls by themselves at first
  REQUIRE(!told.empty());
  CHECK(told.size() <= most);
  CHECK(told[0].at_s - 300 <= 160);
  CHECK(run.run(3600, stalling).empty());
}

TEST_CASE("slow-downs: a fall does not end by itself, and one long enough step is none") {
  Run run;
  run.run(300, 0.01);
  CHECK(run.run(0.5, 4.0).empty());
  CHECK(run.run(300, 0.01).empty());
  REQUIRE(run.run(7 * 86400, 0.2).size() == 1);
  CHECK(run.rule().slow());
  CHECK(run.rule().reference() == Approx(100).epsilon(0.01));
}

TEST_CASE("slow-downs: a run that began slowly knows better once it was faster") {
  Run run;
  run.run(90, 0.02);
  REQUIRE(run.run(90, 0.04).size() == 1);
  CHECK(run.run(2000, 0.01).size() == 1);
  CHECK(run.rule().reference() == Approx(100).epsilon(0.01));
  CHECK(run.run(60, 0.02).size() == 1);
}
