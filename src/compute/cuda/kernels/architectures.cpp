#include "compute/cuda/kernels/architectures.hpp"

namespace ringtrain::cuda::kernels {

const char* kernel_architectures() { return RINGTRAIN_CUDA_ARCHITECTURES; }

}  // namespace ringtrain::cuda::kernels
