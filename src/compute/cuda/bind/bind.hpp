#pragma once
#include "compute/cuda/bind/binder.hpp"
#include "compute/cuda/kernels/arguments/batch_norm.hpp"

namespace ringtrain::compute::cuda {

// Each gives one kind of step its memory and kernels.
Action bind(const Input&, Binder&);
Action bind(const ConvolutionForward&, Binder&);
Action bind(const ConvolutionInputGradient&, Binder&);
Action bind(const ConvolutionWeightGradient&, Binder&);
Action bind(const MatrixProductForward&, Binder&);
Action bind(const MatrixProductInputGradient&, Binder&);
Action bind(const MatrixProductWeightGradient&, Binder&);
Action bind(const ReluForward&, Binder&);
Action bind(const ReluBackward&, Binder&);
Action bind(const BatchNormForward&, Binder&);
Action bind(const BatchNormBackward&, Binder&);
Action bind(const Add&, Binder&);
Action bind(const Concat&, Binder&);
Action bind(const ChannelSlice&, Binder&);
Action bind(const ShortcutForward&, Binder&);
Action bind(const ShortcutBackward&, Binder&);
Action bind(const MaxPoolForward&, Binder&);
Action bind(const MaxPoolBackward&, Binder&);
Action bind(const AveragePoolForward&, Binder&);
Action bind(const AveragePoolBackward&, Binder&);
Action bind(const LrnForward&, Binder&);
Action bind(const LrnBackward&, Binder&);
Action bind(const Dropout&, Binder&);
Action bind(const SoftmaxCrossEntropy&, Binder&);
Action bind(const BatchNormStatistics&, Binder&);
Action bind(const BatchNormFinalize&, Binder&);
Action bind(const BatchNormApply&, Binder&);
Action bind(const BatchNormBackwardReduce&, Binder&);
Action bind(const BatchNormBackwardApply&, Binder&);

/// The memory of `how`; the operands dy and workspace are the caller's. Throws Error where the mask
/// would need a residual: no kernel of ours makes it.
kernels::BatchNormBackwardReduceOperands reduce_operands(const BatchNormSums& how, Binder& b);

}  // namespace ringtrain::compute::cuda
