#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

namespace ringtrain::compute::cuda::kernels {

/// Writes the GPU's time, in nanoseconds, once all that was queued on `stream` before is done.
/// `time` is the device's. Throws Error when the launch fails.
void mark_time(std::uint64_t* time, cudaStream_t stream);

}  // namespace ringtrain::compute::cuda::kernels
