#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "ringtrain/base/batch.hpp"
#include "ringtrain/base/memory/view.hpp"
#include "ringtrain/compute/step.hpp"

namespace ringtrain::compute::cuda::kernels {

inline constexpr int most_image_channels = 8;

/// What normalising one image needs to know of all its pixels.
struct ImageMoments {
  float mean[most_image_channels];  ///< of each channel, after brightness and colour
  float whole, inverse;             ///< mean, and 1 / deviation, of the image after its jitter
};

struct InputOperands {
  Element element;
  std::size_t batch, pixels;   ///< `pixels` of one image
  int channels, y_channels;    ///< y has as many, or 4 or 8 with zeros; or 16 a block
  const std::uint8_t* images;  ///< batch x pixels x channels
  const Sample* jittered;      ///< of each image; null: none is jittered
  Normalisation normalisation;
  float mean[most_image_channels], deviation[most_image_channels];  ///< for mean_deviation
  void* y;                                                          ///< batch x pixels x y_channels
  ImageMoments* moments;                                            ///< workspace: `batch` of them
  /// Above 0: writes blocks of 2x2 pixels of at most 4 channels, as a WeightForm with blocks reads
  /// them. A pixel of y holds so many neighbours of one row, from its own on: y is batch x
  /// stored_height x stored_width x 16 * blocks. What is outside the image is zero.
  int blocks = 0;
  int width = 0;  ///< of an image; for blocks, as all that follows
  int stored_height = 0, stored_width = 0;
  int top = 0, left = 0;  ///< padding of the convolution that reads y
  bool clip = false;      ///< cut off what jitter carried out of 0..255; for mean_deviation
  const Sample* erased = nullptr;  ///< of each image, which then has `width`; null: none is erased
};
/// The Input step: jitters and normalises images; channels that they do not have are zero. All
/// pointers are the device's, y aligned to a pixel. Queues on `stream` and returns; throws Error
/// when a launch fails.
void input(const InputOperands& operands, cudaStream_t stream);

}  // namespace ringtrain::compute::cuda::kernels
