#pragma once
#include "compute/onednn/plan.hpp"

namespace ringtrain::compute::onednn {

/// Whether our own Winograd convolutions take this one: a window of 3 x 3 or 5 x 5 pixels, in fp32
/// also of 1 x 3, 3 x 1, 1 x 7 or 7 x 1, with steps of 1, enough channels and tiles, vector
/// instructions, and for bf16 no AMX, which is faster.
bool suits_winograd(const ConvolutionShape& window, const Tensor& x, const Tensor& y, Isa isa);

/// Whether they take in the pieces of BatchNorms that these steps have: a prologue without residual
/// that writes no y, sums where there is no ReLU, an epilogue without residual. True where there
/// are none. `tensor` gives a tensor's layout.
using TensorOf = std::function<Tensor(TensorId)>;
bool takes_norms(const ConvolutionForward&, const TensorOf& tensor, Isa isa);
bool takes_norms(const ConvolutionInputGradient&, const TensorOf& tensor, Isa isa);
bool takes_norms(const ConvolutionWeightGradient&, const TensorOf& tensor, Isa isa);

// The three passes, on activations in either layout. Filters and sums are fp32, also where
// activations are bf16. fp32's errors are below 2e-5 of the largest result. Bits of filters'
// gradients depend on the number of threads.
Action plan_winograd(const ConvolutionForward&, const Tensor& x, const Tensor& y, Planner&);
Action plan_winograd(const ConvolutionInputGradient&, const Tensor& dy, const Tensor& dx, Planner&);
Action plan_winograd(const ConvolutionWeightGradient&, const Tensor& x, const Tensor& dy, Planner&);

}  // namespace ringtrain::compute::onednn
