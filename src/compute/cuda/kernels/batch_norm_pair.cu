#include "compute/cuda/kernels/arguments/queue.cuh"
#include "compute/cuda/kernels/device/batch_norm_pair_work.hpp"

namespace ringtrain::cuda::kernels {

void batch_norm_backward_apply_pair(const BatchNormBackwardApplyOperands& first,
                                    const BatchNormBackwardApplyOperands& second,
                                    cudaStream_t stream) {
  StreamQueue queue(stream);
  work::batch_norm_backward_apply_pair(first, second, queue);
}

}  // namespace ringtrain::cuda::kernels
