#include "compute/cuda/kernels/arguments/clock.hpp"

#include "ringtrain/base/error.hpp"
#include "support/host_gpu/device.hpp"

namespace ringtrain::compute::cuda::kernels {

// The scheduler's time is in microseconds.
void mark_time(std::uint64_t* time, cudaStream_t stream) {
  const cudaError_t code = host_gpu::call([&](host_gpu::Device& gpu) {
    return gpu.submit(
        stream, "mark_time", [time, &gpu] { *time = 1000 * gpu.scheduler.now(); },
        &host_gpu::Counts::kernels);
  });
  if (code != cudaSuccess) throw Error("mark_time", cudaGetErrorString(code));
}

}  // namespace ringtrain::compute::cuda::kernels
