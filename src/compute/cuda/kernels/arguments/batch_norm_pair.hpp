#pragma once
#include "compute/cuda/kernels/arguments/batch_norm.hpp"

// Two BatchNorms whose results are added: the first block of a ResNet stage.
namespace ringtrain::cuda::kernels {

/// batch_norm_backward_apply of both, which have the same `g` and extents; reads g once. Only the
/// dx of one of them may be g; that of the other, and either x, are other memory. Queues on
/// `stream` and returns; throws Error when the launch fails.
void batch_norm_backward_apply_pair(const BatchNormBackwardApplyOperands& first,
                                    const BatchNormBackwardApplyOperands& second,
                                    cudaStream_t stream);

}  // namespace ringtrain::cuda::kernels
