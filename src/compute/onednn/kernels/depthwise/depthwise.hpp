#pragma once
#include "compute/onednn/plan.hpp"

namespace ringtrain::compute::onednn {

/// Whether a convolution has as many groups as x and y have channels. Our own kernels take all of
/// those, in both layouts, on AVX-512 and AVX2: oneDNN 2.6 has reference kernels for weight
/// gradients of 5x5 and 7x7 filters, and none of bf16 without AVX-512.
bool is_depthwise(const ConvolutionShape& window, const Tensor& x, const Tensor& y);

// Weights are fp32 for all activations. `step` has no activation behind it. Rows of pixels are
// copied to the first cache, in fp32 and with zeros beside them, and read there by all taps. The
// gradients of filters are summed by images and rows, never by thread: their bits are the same with
// any number of threads.
Action plan_depthwise(const ConvolutionForward& step, const Tensor& x, const Tensor& y, Planner&);
Action plan_depthwise(const ConvolutionInputGradient& step, const Tensor& dy, const Tensor& dx,
                      Planner&);
Action plan_depthwise(const ConvolutionWeightGradient& step, const Tensor& x, const Tensor& dy,
                      Planner&);

}  // namespace ringtrain::compute::onednn
