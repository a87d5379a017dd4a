#include "compute/cuda/kernels/arguments/queue.cuh"
#include "compute/cuda/kernels/device/head_work.hpp"
#include "compute/cuda/kernels/device/softmax_work.hpp"

namespace ringtrain::compute::cuda::kernels {

void softmax_cross_entropy(const SoftmaxOperands& operands, cudaStream_t stream) {
  StreamQueue queue(stream);
  work::softmax_cross_entropy(operands, queue);
}

void begin_head(float* head, std::size_t floats, const StepFlags* flags, cudaStream_t stream) {
  StreamQueue queue(stream);
  work::begin_head(head, floats, flags, queue);
}

void add_to_head(float* head, std::size_t statistics, const LossTotals* totals,
                 const float* batch_statistics, const float* sample_weight, const float* share,
                 cudaStream_t stream) {
  StreamQueue queue(stream);
  work::add_to_head(head, statistics, totals, batch_statistics, sample_weight, share, queue);
}

}  // namespace ringtrain::compute::cuda::kernels
