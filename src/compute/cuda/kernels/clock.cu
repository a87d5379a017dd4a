#include "compute/cuda/kernels/arguments/clock.hpp"
#include "compute/cuda/kernels/arguments/queue.cuh"

namespace ringtrain::compute::cuda::kernels {
namespace {

struct MarkTime {
  std::uint64_t* time;
  __device__ void operator()(std::uint32_t) const {
    std::uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    *time = now;
  }
};

}  // namespace

void mark_time(std::uint64_t* time, cudaStream_t stream) {
  StreamQueue(stream).items(MarkTime{time}, 1);
}

}  // namespace ringtrain::compute::cuda::kernels
