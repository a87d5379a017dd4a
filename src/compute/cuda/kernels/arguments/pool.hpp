#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "compute/cuda/kernels/arguments/batch_norm.hpp"
#include "ringtrain/base/memory/view.hpp"
#include "ringtrain/compute/pool_step.hpp"
#include "ringtrain/compute/shape.hpp"

namespace ringtrain::compute::cuda::kernels {

struct PoolOperands {
  Element element;
  Window window;
  Shape x_shape, y_shape;  ///< NHWC of the same channels
  /// Elements from pixel to pixel of y and its gradients, which may be slices; 0: dense, as x is.
  std::size_t y_pitch = 0;
};

// All calls queue on `stream` and return; they throw Error when a launch fails. Backward passes
// gather: each element of dx is written once, by one thread, so the bits are the same every time.

/// What stands for x in a max pool: relu?(x * scale + bias), with fp32 vectors; x where they are
/// null.
struct PoolPrologue {
  const float *scale = nullptr, *bias = nullptr;
  bool relu = false;
};

struct MaxPoolForwardOperands {
  PoolOperands pool;
  PoolPrologue prologue;
  const void* x;
  void* y;
  /// Where it is not null, gets the tap of each window's first maximum, or of its last that is no
  /// number, in row order from the window's corner, or no_winner: a byte a window and channel,
  /// dense.
  std::uint8_t* winners = nullptr;
};
inline constexpr std::uint8_t no_winner = 255;
/// Whether a byte can tell the taps of such a window apart.
constexpr bool has_winners(const Window& w) { return w.height * w.width <= no_winner; }
/// MaxPoolForward: padding never wins. What is no number does, as in PyTorch.
void max_pool_forward(const MaxPoolForwardOperands& operands, cudaStream_t stream);

struct MaxPoolBackwardOperands {
  PoolOperands pool;
  PoolPrologue prologue;
  const void *x, *dy, *dy2 /* optional */;
  void* dx;                               ///< not used by max_pool_backward_reduce
  const std::uint8_t* winners = nullptr;  ///< of max_pool_forward
};
/// MaxPoolBackward without an epilogue: dy + dy2 goes to the first maximum in row order. Without
/// `winners` the maxima are found anew; the forward result is not read.
void max_pool_backward(const MaxPoolBackwardOperands& operands, cudaStream_t stream);

/// Bytes of the workspace that max_pool_backward_reduce needs, free for the next call on the
/// stream.
std::size_t max_pool_workspace(const PoolOperands& operands);

/// MaxPoolBackward with an epilogue: what max_pool_backward would write to dx is the dy of
/// batch_norm_backward_reduce, and `norm.dy` is not read. `norm.g` is a tensor of its own.
void max_pool_backward_reduce(const MaxPoolBackwardOperands& operands,
                              const BatchNormBackwardReduceOperands& norm, cudaStream_t stream);

/// AveragePoolForward: the mean over what is not padding. A window over the whole image has a
/// kernel of its own.
void average_pool_forward(const PoolOperands& operands, const void* x, void* y,
                          cudaStream_t stream);
void average_pool_backward(const PoolOperands& operands, const void* dy, void* dx,
                           cudaStream_t stream);

/// FilterForward, and its gradient. `taps` are of at most 7x7 pixels.
struct FilterOperands {
  static constexpr int most_taps = 49;
  Element element;
  Window window;
  Shape x_shape, y_shape;  ///< dense NHWC of the same channels
  float taps[most_taps];
};
void filter_forward(const FilterOperands& o, const void* x, void* y, cudaStream_t stream);
void filter_backward(const FilterOperands& o, const void* dy, void* dx, cudaStream_t stream);

/// ReflectPadForward, and its gradient; the shapes differ by `border` pixels on each side.
void reflect_pad_forward(Element element, const Shape& x_shape, int border, const void* x, void* y,
                         cudaStream_t stream);
void reflect_pad_backward(Element element, const Shape& x_shape, int border, const void* dy,
                          void* dx, cudaStream_t stream);

struct LrnOperands {
  Element element;
  std::size_t pixels, channels;  ///< dense NHWC, at most 3072 channels
  attributes::Lrn how;
};

// Both queue on `stream` and return; they throw Error when a launch fails. Results may lie over
// inputs.

/// LrnForward.
void lrn_forward(const LrnOperands& operands, const void* x, void* y, cudaStream_t stream);
/// LrnBackward; `mask`: dx is also zero where x <= 0.
void lrn_backward(const LrnOperands& operands, const void* x, const void* dy, void* dx, bool mask,
                  cudaStream_t stream);

}  // namespace ringtrain::compute::cuda::kernels
