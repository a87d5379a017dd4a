#pragma once
#include "compute/cuda/bind/binder.hpp"
#include "compute/cuda/kernels/arguments/batch_norm.hpp"

namespace ringtrain::compute::cuda {

/// Gives one kind of step its memory and kernels. Each kind has its specialisation, in the file of
/// its operation.
template <class Kind>
Action bind(const Kind& step, Binder& binder);

/// The memory of `how`; the operands dy and workspace are the caller's. Throws Error where the mask
/// would need a residual: no kernel of ours makes it.
kernels::BatchNormBackwardReduceOperands reduce_operands(const BatchNormSums& how, Binder& b);

}  // namespace ringtrain::compute::cuda
