#include "ringtrain/metrics/scaling/speedup.hpp"

#include "ringtrain/base/error.hpp"
#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::metrics;
using Catch::Contains;

namespace {

Windows rates(std::vector<double> rates) { return {std::move(rates), {}, {}}; }

}  // namespace

TEST_CASE("baseline: neighbouring windows are compared, so a machine's change of speed drops out") {
  const ScalingResult c = compare(rates({100, 200, 50}), rates({190, 380, 95}), 2);

  CHECK(c.speed_up.median == Approx(1.9));
  CHECK(c.speed_up.deviation == Approx(0).margin(1e-12));
  CHECK(c.efficiency == Approx(0.95));
  CHECK(c.alone.median == 100);
  CHECK(c.together.median == 190);
  CHECK(c.verdict == "2 ranks are 1.90 +- 0.00 times as fast as one, efficiency 95 %: good.");
}

TEST_CASE("baseline: the verdict says how well it scales") {
  CHECK_THAT(compare(rates({100}), rates({320}), 4).verdict, Contains("80 %: fair"));
  CHECK_THAT(compare(rates({100}), rates({250}), 4).verdict, Contains("62 %: poor"));
  CHECK_THAT(compare(rates({220}), rates({21}), 2).verdict,
             Contains("2 ranks are slower than one: 0.10"));
  CHECK_THAT(compare(rates({220}), rates({220}), 1).verdict, Contains("1 rank alone: 220.0"));
}

TEST_CASE("baseline: windows that disagree are said to") {
  CHECK_THAT(compare(rates({100, 100, 100}), rates({150, 190, 170}), 2).verdict,
             Contains("Windows differ by 17 %"));
  CHECK_THAT(compare(rates({100, 100, 100}), rates({189, 190, 191}), 2).verdict,
             !Contains("differ"));
}

TEST_CASE("baseline: no or unequal windows are refused") {
  CHECK_THROWS_AS(compare(rates({}), rates({}), 2), Error);
  CHECK_THROWS_AS(compare(rates({1, 2}), rates({1}), 2), Error);
  CHECK_THROWS_AS(compare(rates({0}), rates({1}), 2), Error);
}

TEST_CASE("baseline: a step of the same size alone saves updates, which counts against the ranks") {
  Windows alone = rates({100}), together = rates({180});
  alone.phases[Phase::forward] = 0.75;
  alone.phases[Phase::update] = 0.25;

  const ScalingResult c = compare(alone, together, 2);

  // Alone: two batches take 1.75 s with one update, not 2 s. Together: one step, 1 / 0.9 s.
  CHECK(c.efficiency == Approx(0.9));
  CHECK(c.strong_efficiency == Approx(1.75 / (2 / 0.9)));
  CHECK(compare(alone, rates({100}), 1).strong_efficiency == Approx(1));
}

TEST_CASE("baseline: the verdict names the phase that grew most") {
  Windows alone = rates({100}), together = rates({150});
  alone.phases[Phase::backward] = 0.004;
  together.phases[Phase::backward] = 0.005;
  together.phases[Phase::communication] = 0.003;

  const ScalingResult c = compare(alone, together, 2);

  CHECK_THAT(c.verdict, Contains("Most of the rest is communication: 3.00 ms a step more"));
  const std::vector<std::string> lines = speedup_lines(c, 2);
  REQUIRE(lines.size() == 4);
  CHECK_THAT(lines[0], Contains("2 ranks 150.0 +- 0.0, speed-up 1.50"));
  CHECK_THAT(lines[2], Contains("communication            0.00       3.00        +3.00"));
  CHECK_THAT(lines[2], !Contains("forward"));
}

TEST_CASE("baseline: jitter is the spread of single steps") {
  Windows alone = rates({100}), together = rates({190});
  alone.step_s = {1, 1, 1};
  together.step_s = {1, 2, 3, 2, 2, 1, 3};

  const ScalingResult c = compare(alone, together, 2);

  CHECK(c.alone_jitter == 0);
  CHECK(c.together_jitter == Approx(1.4826 / 2));
}

TEST_CASE("baseline: one rank is not called ranks") {
  CHECK(ranks_text(1) == "1 rank");
  CHECK(ranks_text(2) == "2 ranks");
  CHECK_THAT(speedup_lines(compare(rates({100}), rates({100}), 1), 1)[0], Contains("1 rank 100.0"));
}
