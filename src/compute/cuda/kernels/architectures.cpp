#include "compute/cuda/kernels/architectures.hpp"

namespace ringtrain::compute::cuda::kernels {

const char* kernel_architectures() { return RINGTRAIN_CUDA_ARCHITECTURES; }

}  // namespace ringtrain::compute::cuda::kernels
