#include "compute/cuda/kernels/arguments/queue.cuh"
#include "compute/cuda/kernels/device/grouped_convolution_work.hpp"

namespace ringtrain::compute::cuda::kernels {

void grouped_convolution_forward(const GroupedConvolution& c, const void* x, const float* w,
                                 const float* b, Activation then, void* y, float* workspace,
                                 cudaStream_t stream) {
  StreamQueue queue(stream);
  work::grouped_convolution_forward(c, x, w, b, then, y, workspace, queue);
}

void grouped_convolution_input_gradient(const GroupedConvolution& c, const void* dy, const float* w,
                                        void* dx, float* workspace, cudaStream_t stream) {
  StreamQueue queue(stream);
  work::grouped_convolution_input_gradient(c, dy, w, dx, workspace, queue);
}

void grouped_convolution_weight_gradient(const GroupedConvolution& c, const void* x, const void* dy,
                                         float* dw, float* workspace, cudaStream_t stream) {
  StreamQueue queue(stream);
  work::grouped_convolution_weight_gradient(c, x, dy, dw, workspace, queue);
}

std::size_t grouped_convolution_workspace(const GroupedConvolution& c) {
  return work::grouped_workspace(c);
}

}  // namespace ringtrain::compute::cuda::kernels
