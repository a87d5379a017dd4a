#pragma once
#include "compute/onednn/plan.hpp"

namespace ringtrain::compute::onednn {

/// Whether a convolution has as many groups as x and y have channels. Our own kernels take all of
/// those: oneDNN 2.6 has reference kernels for weight gradients of 5x5 and 7x7 filters.
bool is_depthwise(const ConvolutionShape& window, const Tensor& x, const Tensor& y);

// Weights are fp32 for all activations. `step` has no activation behind it.
Action plan_depthwise(const ConvolutionForward& step, const Tensor& x, const Tensor& y, Planner&);
Action plan_depthwise(const ConvolutionInputGradient& step, const Tensor& dy, const Tensor& dx,
                      Planner&);
Action plan_depthwise(const ConvolutionWeightGradient& step, const Tensor& x, const Tensor& dy,
                      Planner&);

}  // namespace ringtrain::compute::onednn
