#include "ringtrain/train/baseline.hpp"

#include <catch2/catch.hpp>

#include "ringtrain/base/error.hpp"

using namespace ringtrain;
using Catch::Contains;

TEST_CASE("baseline: neighbouring windows are compared, so a machine's change of speed drops out") {
  const Comparison c = compare({100, 200, 50}, {190, 380, 95}, 2);

  CHECK(c.speed_up.median == Approx(1.9));
  CHECK(c.speed_up.deviation == Approx(0).margin(1e-12));
  CHECK(c.efficiency == Approx(0.95));
  CHECK(c.alone.median == 100);
  CHECK(c.together.median == 190);
  CHECK(c.verdict == "2 ranks are 1.90 +- 0.00 times as fast as one, efficiency 95 %: good.");
}

TEST_CASE("baseline: the verdict says how well it scales") {
  CHECK_THAT(compare({100}, {320}, 4).verdict, Contains("80 %: fair") && Contains("phases below"));
  CHECK_THAT(compare({100}, {250}, 4).verdict, Contains("62 %: poor"));
  CHECK_THAT(compare({220}, {21}, 2).verdict, Contains("2 ranks are slower than one: 0.10"));
  CHECK_THAT(compare({220}, {220}, 1).verdict, Contains("1 rank alone: 220.0"));
}

TEST_CASE("baseline: windows that disagree are said to") {
  CHECK_THAT(compare({100, 100, 100}, {150, 190, 170}, 2).verdict,
             Contains("Windows differ by 17 %"));
  CHECK_THAT(compare({100, 100, 100}, {189, 190, 191}, 2).verdict, !Contains("differ"));
}

TEST_CASE("baseline: no or unequal windows are refused") {
  CHECK_THROWS_AS(compare({}, {}, 2), Error);
  CHECK_THROWS_AS(compare({1, 2}, {1}, 2), Error);
  CHECK_THROWS_AS(compare({0}, {1}, 2), Error);
}
