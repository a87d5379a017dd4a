#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "ringtrain/base/batch.hpp"
#include "ringtrain/base/memory/view.hpp"
#include "ringtrain/compute/operation.hpp"

// Activations are dense NHWC of `element` on the device unless a pitch is given. All calls queue on
// `stream` and return; they throw Error when a launch fails. Results may lie over inputs of the
// same extent, except in copy_channels and the shortcuts.
namespace ringtrain::compute::cuda::kernels {

/// y = f(x); what is no number stays none.
void pointwise(Activation f, Element element, std::size_t count, const void* x, void* y,
               cudaStream_t stream);
/// dx = f'(x) * dy, by the output or the input of f, as PointwiseBackward says.
void pointwise_backward(Activation f, Element element, std::size_t count, const void* saved,
                        const void* dy, void* dx, cudaStream_t stream);
/// y = then(a + b)
void add(Element element, std::size_t count, const void* a, const void* b, void* y, Activation then,
         cudaStream_t stream);
/// y = factor * x, rounded to another element type; buffers of different types do not overlap.
void scale(Element from, Element to, float factor, std::size_t count, const void* x, void* y,
           cudaStream_t stream);
/// Rounds to another element type; the buffers do not overlap.
void convert(Element from, Element to, std::size_t count, const void* x, void* y,
             cudaStream_t stream);

/// The extents of ScaleForward and ScaleBackward.
struct ScaleExtents {
  Element element;
  std::size_t batch, pixels, channels;  ///< pixels of an image
};
/// y = x * s, where s has a factor for each channel of an image.
void scale_forward(const ScaleExtents& e, const void* x, const void* s, void* y,
                   cudaStream_t stream);
/// ds = the sum over an image's pixels of dy * x, then dx = dy * s. Either may be null; dx may lie
/// over dy. The same bits every time.
void scale_backward(const ScaleExtents& e, const void* x, const void* s, const void* dy, void* dx,
                    void* ds, cudaStream_t stream);

struct DropoutOperands {
  Element element;
  std::size_t batch, features;
  const void* x;
  void* y;  ///< may be x
  attributes::Dropout how;
  std::uint64_t seed;
  const Sample* samples;  ///< `batch` of them, on the device
};
/// The Dropout step; keeps exactly the elements that the other backends keep.
void dropout(const DropoutOperands& operands, cudaStream_t stream);

/// y = then(x + bias), bias fp32, one a channel.
void add_bias(Element element, std::size_t pixels, std::size_t channels, const void* x,
              const float* bias, void* y, Activation then, cudaStream_t stream);
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
