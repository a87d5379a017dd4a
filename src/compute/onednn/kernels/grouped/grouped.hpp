#pragma once
#include "compute/onednn/plan.hpp"

namespace ringtrain::compute::onednn {

/// Whether a convolution from x to y is in groups of 4 or 8 channels and three pixels wide. Our own
/// kernels take those: where groups share a block oneDNN 2.6 has reference kernels for them, and
/// others only of merged groups, which multiply two to four times as much.
bool is_grouped(const ConvolutionShape& window, const Tensor& x, const Tensor& y);
/// Likewise, its gradients. Where each group is a block, as with AVX2, oneDNN's are faster, but for
/// those of strides without padding on the left, of which some have reference kernels alone.
bool has_grouped_gradients(const ConvolutionShape& window, const Tensor& x, const Tensor& y);

// Weights are fp32 for all activations. `step` has no activation behind it.
Action plan_grouped(const ConvolutionForward& step, const Tensor& x, const Tensor& y, Planner&);
Action plan_grouped(const ConvolutionInputGradient& step, const Tensor& dy, const Tensor& dx,
                    Planner&);
Action plan_grouped(const ConvolutionWeightGradient& step, const Tensor& x, const Tensor& dy,
                    Planner&);

}  // namespace ringtrain::compute::onednn
