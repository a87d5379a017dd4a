#include "compute/cuda/kernels/arguments/queue.cuh"
#include "compute/cuda/kernels/device/lrn_work.hpp"

namespace ringtrain::compute::cuda::kernels {

void lrn_forward(const LrnOperands& operands, const void* x, void* y, cudaStream_t stream) {
  StreamQueue queue(stream);
  work::lrn_forward(operands, x, y, queue);
}

void lrn_backward(const LrnOperands& operands, const void* x, const void* dy, void* dx, bool mask,
                  cudaStream_t stream) {
  StreamQueue queue(stream);
  work::lrn_backward(operands, x, dy, dx, mask, queue);
}

}  // namespace ringtrain::compute::cuda::kernels
