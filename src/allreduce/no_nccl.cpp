#include "allreduce/nccl_calls.hpp"
#include "ringtrain/base/error.hpp"

namespace ringtrain {

std::unique_ptr<NcclCalls> make_nccl_calls() {
  throw Error(Exit::usage, "--allreduce nccl",
              "this build has no CUDA; configure with -DRINGTRAIN_CUDA=ON");
}

}  // namespace ringtrain
