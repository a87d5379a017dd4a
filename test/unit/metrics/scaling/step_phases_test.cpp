#include "ringtrain/metrics/scaling/step_phases.hpp"

#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::metrics;

TEST_CASE("spread: is the median and the scaled median absolute deviation") {
  CHECK(spread_of({}).median == 0);
  CHECK(spread_of({3}).median == 3);
  CHECK(spread_of({3}).deviation == 0);
  CHECK(spread_of({4, 1, 3, 2}).median == Approx(2.5));
  CHECK(spread_of({5, 1, 3}).deviation == Approx(1.4826 * 2));
  CHECK(spread_of({1, 2, 3, 4, 1000}).median == 3);
  CHECK(spread_of({1, 2, 3, 4, 1000}).deviation == Approx(1.4826));
}

TEST_CASE("phases: each has its own names") {
  CHECK(phase_names(Phase::init).watchdog == "init");
  CHECK(phase_names(Phase::communication).watchdog == "all-reduce");
  CHECK(phase_names(Phase::communication).metric == "comm_exposed");
  CHECK(phase_names(Phase::exit).watchdog == "exit");
  CHECK(phase_names(Phase::other).metric == "other");
  CHECK(phase_names(Phase::checkpoint_write).timeline == "write checkpoint");
}

TEST_CASE("step times: phases add up to the wall time, the rest is other") {
  StepTimes times;
  PhaseSeconds step;
  step[Phase::forward] += 0.25;
  step[Phase::backward] += 0.5;
  step[Phase::forward] += 0.25;
  const PhaseSeconds whole = times.add_step(step, 1.5, 100);

  CHECK(times.total()[Phase::forward] == 0.5);
  CHECK(times.total()[Phase::backward] == 0.5);
  CHECK(times.total()[Phase::other] == 0.5);
  CHECK(times.total().total() == 1.5);
  CHECK(whole.total() == 1.5);
}

TEST_CASE("step times: the mean is of the steps since it was last taken") {
  StepTimes times;
  PhaseSeconds step;
  step[Phase::update] = 0.5;
  times.add_step({}, 100, 1);
  static_cast<void>(times.take_mean());
  times.add_step(step, 1, 30);
  times.add_step({}, 3, 50);

  const auto mean = times.take_mean();

  CHECK(mean.phases[Phase::update] == 0.25);
  CHECK(mean.phases[Phase::other] == 1.75);
  CHECK(mean.seconds == 2);
  CHECK(mean.examples_per_second == 20);
  CHECK(times.take_mean().seconds == 0);
  CHECK(times.steps() == 3);
}

TEST_CASE("step times: sums are counted beside the phases") {
  StepTimes times;
  times.add_step({}, 1, 1, 0.5);
  times.add_step({}, 1, 1, 0.25);

  CHECK(times.take_mean().sums_seconds == 0.375);
  times.add_step({}, 1, 1, 0.25);
  CHECK(times.take_mean().sums_seconds == 0.25);
  CHECK(times.total_sums_seconds() == 1);
  CHECK(times.total().total() == 3);
}

TEST_CASE("step times: throughput leaves out the first ten steps, or half of a short run") {
  StepTimes times;
  CHECK(times.throughput().median == 0);
  times.add_step({}, 100, 100);
  CHECK(times.throughput().median == 1);
  times.add_step({}, 1, 100);
  CHECK(times.throughput().median == 100);
  for (int step = 2; step < 10; ++step) times.add_step({}, 100, 100);
  for (int step = 0; step < 10; ++step) times.add_step({}, 1, 100);

  CHECK(times.throughput().median == 100);
  CHECK(times.throughput().deviation == 0);
}

TEST_CASE("stopwatch: laps are of the time since the last") {
  Stopwatch watch;

  CHECK(watch.lap() >= 0);
  CHECK(watch.lap() < 60);
}
