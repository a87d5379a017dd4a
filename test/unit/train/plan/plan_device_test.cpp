#include "support/catch.hpp"
#include "train/preflight/memory_report.hpp"

using namespace ringtrain;
using namespace ringtrain::train;

TEST_CASE(
    "plan: a GPU that is not here is planned with CUDA, and a build without says how to get it") {
  config::Options o;
  o.model = "mlp";
  o.plan = true;
  o.plan_device = "h100";
  o.batch = 32;

  if constexpr (BUILT_WITH_CUDA)
    CHECK_THAT(plan_report(ModelSource(o), o), Catch::Contains("predicted: "));
  else
    CHECK_THROWS_WITH(plan_report(ModelSource(o), o), Catch::Contains("this build has no CUDA") &&
                                                          Catch::Contains("-DRINGTRAIN_CUDA=ON"));
}
