#include <catch2/catch.hpp>

#include "train/plan_report.hpp"

using namespace ringtrain;

TEST_CASE("plan: a build without CUDA says so, and how to get one") {
  Options o;
  o.plan = true;
  o.plan_device = "h100";

  CHECK_THROWS_WITH(plan_report(o), Catch::Contains("this build has no CUDA") &&
                                        Catch::Contains("-DRINGTRAIN_CUDA=ON"));
}
