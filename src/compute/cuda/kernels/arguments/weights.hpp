#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "ringtrain/base/memory/view.hpp"

namespace ringtrain::compute::cuda::kernels {

/// The weights of a convolution, out x height x width x in, and the form in which they meet an
/// image that is stored otherwise: see stored() in compute/cuda/convolution.hpp, and InputOperands.
/// Without `blocks` height and width stay, and channels are padded. With `blocks`, of a convolution
/// with stride 2, a stored pixel is a block of 2x2 pixels that starts at an even row and column of
/// the image; its channel (dy * 2 + dx) * in + c is channel c of the block's pixel (dy, dx). The
/// first stored block is the one in which the padding begins. What has no weight is zero.
struct WeightForm {
  int out, height, width, in;
  int top, left;  ///< the window's padding
  int stored_height, stored_width, stored_in;
  bool blocks;
};

/// From flat weights, aligned to their elements only, to the stored form, aligned to 16 bytes for
/// speed. Both are the device's and do not overlap. Queues on `stream` and returns; throws Error
/// when a launch fails or the form does not hold the weights.
void pack_weights(const WeightForm& form, Element element, const void* weights, void* packed,
                  cudaStream_t stream);
/// From a gradient in the stored form to the flat one, as pack_weights otherwise. What has no place
/// in the flat one is dropped.
void unpack_weights(const WeightForm& form, Element element, const void* packed, float* gradient,
                    cudaStream_t stream);

/// A part of a 16-bit gradient, aligned to 16 bytes, and where it belongs among the flat fp32 ones.
struct WidenTile {
  const void* from;
  std::uint64_t to;       ///< the first of the flat elements
  std::uint32_t count;    ///< elements, at most most_widened
  std::uint32_t vectors;  ///< of 8 elements, to be written at once: none where that is not aligned
};
inline constexpr std::uint32_t most_widened = 8192;

/// Widens all `count` tiles, which lie on the device as their buffers do, into `gradients` in one
/// launch. No buffers overlap. Queues on `stream` and returns; throws Error when the launch fails.
void widen_gradients(Element element, const WidenTile* tiles, std::size_t count, float* gradients,
                     cudaStream_t stream);

}  // namespace ringtrain::compute::cuda::kernels
