#include "compute/cuda/kernels/arguments/queue.cuh"
#include "compute/cuda/kernels/device/batch_norm_work.hpp"

namespace ringtrain::compute::cuda::kernels {

std::size_t batch_norm_workspace(std::size_t pixels, std::size_t channels) {
  return sums_workspace(pixels, channels, 2);
}

void batch_norm_statistics(Element element, std::size_t pixels, std::size_t channels, const void* x,
                           std::size_t x_pitch, float* sums, float* workspace,
                           cudaStream_t stream) {
  StreamQueue queue(stream);
  work::batch_norm_statistics(element, pixels, channels, x, x_pitch, sums, workspace, queue);
}

void batch_norm_finalize(const BatchNormFinalizeOperands& operands, cudaStream_t stream) {
  StreamQueue queue(stream);
  work::batch_norm_finalize(operands, queue);
}

void batch_norm_evaluation(const BatchNormEvaluationOperands& operands, cudaStream_t stream) {
  StreamQueue queue(stream);
  work::batch_norm_evaluation(operands, queue);
}

void batch_norm_apply(const BatchNormApplyOperands& operands, cudaStream_t stream) {
  StreamQueue queue(stream);
  work::batch_norm_apply(operands, queue);
}

void batch_norm_backward_reduce(const BatchNormBackwardReduceOperands& operands,
                                cudaStream_t stream) {
  StreamQueue queue(stream);
  work::batch_norm_backward_reduce(operands, queue);
}

void batch_norm_backward_coefficients(const BatchNormBackwardReduceOperands& operands,
                                      cudaStream_t stream) {
  StreamQueue queue(stream);
  work::batch_norm_backward_coefficients(operands, queue);
}

void batch_norm_backward_apply(const BatchNormBackwardApplyOperands& operands,
                               cudaStream_t stream) {
  StreamQueue queue(stream);
  work::batch_norm_backward_apply(operands, queue);
}

void batch_norm_backward_apply_pair(const BatchNormBackwardApplyOperands& first,
                                    const BatchNormBackwardApplyOperands& second,
                                    cudaStream_t stream) {
  StreamQueue queue(stream);
  work::batch_norm_backward_apply_pair(first, second, queue);
}

}  // namespace ringtrain::compute::cuda::kernels
