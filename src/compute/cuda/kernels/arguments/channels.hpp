#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>

#include "ringtrain/base/memory/view.hpp"
#include "ringtrain/compute/shape.hpp"

// Activations are NHWC of `element` on the device, dense unless a pitch is given. All calls queue
// on `stream` and return; they throw Error when a launch fails.
namespace ringtrain::compute::cuda::kernels {

/// y = relu?(x + bias), bias fp32, one a channel.
void add_bias(Element element, std::size_t pixels, std::size_t channels, const void* x,
              const float* bias, void* y, bool relu, cudaStream_t stream);
/// db = sum of dy over pixels, fp32, the same bits every time. `workspace`:
/// bias_gradient_workspace().
void bias_gradient(Element element, std::size_t pixels, std::size_t channels, const void* dy,
                   float* db, float* workspace, cudaStream_t stream);
std::size_t bias_gradient_workspace(std::size_t pixels, std::size_t channels);

/// Copies `channels` channels of each pixel between tensors whose pixels lie `pitch` elements
/// apart; `x` and `y` point at the first of them. A concatenation is one call an input.
void copy_channels(Element element, std::size_t pixels, std::size_t channels, const void* x,
                   std::size_t x_pitch, void* y, std::size_t y_pitch, cudaStream_t stream);

/// ShortcutForward: every stride-th pixel, missing channels zero.
void shortcut_forward(Element element, const Shape& x_shape, const Shape& y_shape, int stride,
                      const void* x, void* y, cudaStream_t stream);
/// ShortcutBackward: the reverse; pixels and channels that were not carried get zero.
void shortcut_backward(Element element, const Shape& dy_shape, const Shape& dx_shape, int stride,
                       const void* dy, void* dx, cudaStream_t stream);

}  // namespace ringtrain::compute::cuda::kernels
