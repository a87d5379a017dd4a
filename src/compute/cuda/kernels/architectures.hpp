#pragma once

namespace ringtrain::compute::cuda::kernels {

/// What the kernels were compiled for, as CMAKE_CUDA_ARCHITECTURES with commas; empty: for any GPU.
const char* kernel_architectures();

}  // namespace ringtrain::compute::cuda::kernels
