#include "compute/cuda/kernels/arguments/queue.cuh"
#include "compute/cuda/kernels/device/layer_norm_work.hpp"

namespace ringtrain::compute::cuda::kernels {

void layer_norm_forward(const LayerNormOperands& o, void* y, cudaStream_t stream) {
  StreamQueue queue(stream);
  work::layer_norm_forward(o, y, queue);
}

void layer_norm_backward(const LayerNormOperands& o, const void* dy, void* dx, float* dgamma,
                         float* dbeta, float* workspace, cudaStream_t stream) {
  StreamQueue queue(stream);
  work::layer_norm_backward(o, dy, dx, dgamma, dbeta, workspace, queue);
}

std::size_t layer_norm_workspace(std::size_t pixels, std::size_t channels) {
  return work::moments_bytes(pixels) + sums_workspace(pixels, channels, 2);
}

}  // namespace ringtrain::compute::cuda::kernels
