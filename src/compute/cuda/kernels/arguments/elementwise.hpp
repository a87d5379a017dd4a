#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "ringtrain/base/memory/view.hpp"

// Activations are dense NHWC of `element` on the device unless a pitch is given. All calls queue on
// `stream` and return; they throw Error when a launch fails. Results may lie over inputs of the
// same extent, except in copy_channels and the shortcuts.
namespace ringtrain::compute::cuda::kernels {

/// y = max(x, 0); what is no number stays none.
void relu_forward(Element element, std::size_t count, const void* x, void* y, cudaStream_t stream);
/// dx = dy where y > 0, else 0
void relu_backward(Element element, std::size_t count, const void* y, const void* dy, void* dx,
                   cudaStream_t stream);
/// y = relu?(a + b)
void add(Element element, std::size_t count, const void* a, const void* b, void* y, bool relu,
         cudaStream_t stream);
/// y = factor * x, rounded to another element type; buffers of different types do not overlap.
void scale(Element from, Element to, float factor, std::size_t count, const void* x, void* y,
           cudaStream_t stream);
/// Rounds to another element type; the buffers do not overlap.
void convert(Element from, Element to, std::size_t count, const void* x, void* y,
             cudaStream_t stream);

struct DropoutOperands {
  Element element;
  std::size_t batch, features;
  const void* x;
  void* y;  ///< may be x
  float keep;
  std::uint64_t seed;
  std::uint32_t layer;
  const std::uint32_t* epochs;   ///< of each sample, on the device
  const std::uint64_t* samples;  ///< of each sample, on the device
};
/// The Dropout step; keeps exactly the elements that the other backends keep.
void dropout(const DropoutOperands& operands, cudaStream_t stream);

}  // namespace ringtrain::compute::cuda::kernels
