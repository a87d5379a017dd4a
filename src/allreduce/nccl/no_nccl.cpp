#include <memory>

#include "allreduce/nccl/nccl_api.hpp"
#include "ringtrain/allreduce/nccl/gpu_assignment.hpp"
#include "ringtrain/base/error.hpp"

namespace ringtrain::allreduce {

std::string why_nccl_is_missing() { return "this build has no CUDA"; }

bool keeps_launch_order() { return false; }

std::unique_ptr<NcclApi> make_nccl_calls() {
  throw Error(Exit::usage, "--allreduce nccl",
              "this build has no CUDA; configure with -DRINGTRAIN_CUDA=ON");
}

LibraryVersions nccl_version() { return {}; }

}  // namespace ringtrain::allreduce
