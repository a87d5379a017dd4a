#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>

#include "ringtrain/base/memory/view.hpp"

namespace ringtrain::compute::cuda::kernels {

struct LrnOperands {
  Element element;
  std::size_t pixels, channels;  ///< dense NHWC, at most 3072 channels
  int radius;
  float bias, alpha, beta;
};

// Both queue on `stream` and return; they throw Error when a launch fails. Results may lie over
// inputs.

/// LrnForward.
void lrn_forward(const LrnOperands& operands, const void* x, void* y, cudaStream_t stream);
/// LrnBackward; `mask`: dx is also zero where x <= 0.
void lrn_backward(const LrnOperands& operands, const void* x, const void* dy, void* dx, bool mask,
                  cudaStream_t stream);

}  // namespace ringtrain::compute::cuda::kernels
