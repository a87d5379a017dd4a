#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>

#include "ringtrain/base/memory/view.hpp"

namespace ringtrain::compute::cuda::kernels {

/// Dense NHWC tensors of `element`, fp32 vectors of a channel each.
struct LayerNormOperands {
  Element element;
  std::size_t pixels, channels;
  const float *gamma, *beta;
  float epsilon;
  const void* x;
};

// Both calls queue on `stream` and return; they throw Error when a launch fails. The bits are the
// same every time.

/// LayerNormForward.
void layer_norm_forward(const LayerNormOperands& o, void* y, cudaStream_t stream);
/// LayerNormBackward; dx may lie over dy. `workspace`: layer_norm_workspace().
void layer_norm_backward(const LayerNormOperands& o, const void* dy, void* dx, float* dgamma,
                         float* dbeta, float* workspace, cudaStream_t stream);
std::size_t layer_norm_workspace(std::size_t pixels, std::size_t channels);

}  // namespace ringtrain::compute::cuda::kernels
