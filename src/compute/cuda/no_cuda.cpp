#include <memory>

#include "ringtrain/base/error.hpp"
#include "ringtrain/compute/gpu.hpp"
#include "ringtrain/compute/gpu_planner.hpp"

namespace ringtrain::compute {
namespace {

const char* why = "this build has no CUDA; configure with -DRINGTRAIN_CUDA=ON";

}  // namespace

std::unique_ptr<GpuPlanner> make_gpu_planner(const GpuModel& model, Element, bool) {
  throw Error(Exit::usage, "plan for " + model.name, why);
}

std::unique_ptr<GpuBackend> make_gpu_backend(const GpuSettings&) {
  throw Error(Exit::usage, "train on a GPU", why);
}

GpusHere gpus_here() { return {.in_build = false, .why = why}; }

LibraryVersions gpu_libraries() { return {}; }

}  // namespace ringtrain::compute
