#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>

#include "ringtrain/base/memory/view.hpp"
#include "ringtrain/compute/operation.hpp"

namespace ringtrain::compute::cuda::kernels {

/// A convolution that cuDNN is not asked for. Activations are dense NHWC of `element`; weights,
/// biases and their gradients are fp32, as in the flat buffers.
struct GroupedConvolution {
  Element element;
  ConvolutionShape window;  ///< without dilation
  Shape x, y;
};

// All calls queue on `stream` and return; they throw Error when a launch fails. The bits are the
// same every time. `workspace` has grouped_convolution_workspace() bytes.

/// y = then(x * w + b?); `b` may be null.
void grouped_convolution_forward(const GroupedConvolution& c, const void* x, const float* w,
                                 const float* b, Activation then, void* y, float* workspace,
                                 cudaStream_t stream);
void grouped_convolution_input_gradient(const GroupedConvolution& c, const void* dy, const float* w,
                                        void* dx, float* workspace, cudaStream_t stream);
void grouped_convolution_weight_gradient(const GroupedConvolution& c, const void* x, const void* dy,
                                         float* dw, float* workspace, cudaStream_t stream);
std::size_t grouped_convolution_workspace(const GroupedConvolution& c);

}  // namespace ringtrain::compute::cuda::kernels
