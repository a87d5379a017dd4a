#pragma once
#include "compute/cuda/bind/binder.hpp"
#include "compute/cuda/kernels/arguments/batch_norm.hpp"

namespace ringtrain::compute::cuda {

/// The memory of `how`; the operands dy and workspace are the caller's. Throws Error where the mask
/// would need a residual: no kernel of ours makes it.
kernels::BatchNormBackwardReduceOperands reduce_operands(const BatchNormSums& how, Binder& b);

}  // namespace ringtrain::compute::cuda
