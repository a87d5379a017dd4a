#include "ringtrain/base/error.hpp"
#include "ringtrain/compute/gpu_planner.hpp"

namespace ringtrain {

std::unique_ptr<GpuPlanner> make_gpu_planner(const GpuModel& model, Element) {
  throw Error(Exit::usage, "plan for " + model.name,
              "this build has no CUDA; configure with -DRINGTRAIN_CUDA=ON");
}

}  // namespace ringtrain
