#pragma once
#include <cuda_runtime_api.h>

#include "ringtrain/compute/element.hpp"
#include "ringtrain/compute/shape.hpp"

namespace ringtrain::cuda::kernels {

struct PoolOperands {
  Element element;
  Window window;
  Shape x_shape, y_shape;  ///< dense NHWC; the same channels
};

// All calls queue on `stream` and return; they throw Error when a launch fails. Backward passes
// gather: each element of dx is written once, by one thread, so the bits are the same every time.

/// MaxPoolForward: padding never wins.
void max_pool_forward(const PoolOperands& operands, const void* x, void* y, cudaStream_t stream);
/// MaxPoolBackward: the gradient goes to the first maximum in row order.
void max_pool_backward(const PoolOperands& operands, const void* x, const void* y, const void* dy,
                       void* dx, cudaStream_t stream);
/// AveragePoolForward: the mean over what is not padding. A window over the whole image has a
/// kernel of its own.
void average_pool_forward(const PoolOperands& operands, const void* x, void* y,
                          cudaStream_t stream);
void average_pool_backward(const PoolOperands& operands, const void* dy, void* dx,
                           cudaStream_t stream);

}  // namespace ringtrain::cuda::kernels
