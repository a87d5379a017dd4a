#include "compute/cuda/kernels/arguments/queue.cuh"
#include "compute/cuda/kernels/device/softmax_work.hpp"

namespace ringtrain::compute::cuda::kernels {

void softmax_cross_entropy(const SoftmaxOperands& operands, cudaStream_t stream) {
  StreamQueue queue(stream);
  work::softmax_cross_entropy(operands, queue);
}

}  // namespace ringtrain::compute::cuda::kernels
