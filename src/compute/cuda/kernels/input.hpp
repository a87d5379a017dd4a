#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "ringtrain/base/batch.hpp"
#include "ringtrain/compute/element.hpp"
#include "ringtrain/compute/step.hpp"

namespace ringtrain::cuda::kernels {

inline constexpr int most_image_channels = 8;

/// What normalising one image needs to know of all its pixels.
struct ImageMoments {
  float mean[most_image_channels];  ///< of each channel, after brightness and colour
  float whole, inverse;             ///< mean, and 1 / deviation, of the image after all distortions
};

struct InputOperands {
  Element element;
  std::size_t batch, pixels;      ///< `pixels` of one image
  int channels, y_channels;       ///< y has 4 or 8, at least `channels`
  const std::uint8_t* images;     ///< batch x pixels x channels
  const Distortion* distortions;  ///< of each image; null: none
  Normalisation normalisation;
  float mean[most_image_channels], deviation[most_image_channels];  ///< for mean_deviation
  void* y;                                                          ///< batch x pixels x y_channels
  ImageMoments* moments;                                            ///< workspace: `batch` of them
};
/// The Input step: distorts and normalises images; channels that they do not have are zero. All
/// pointers are the device's. Queues on `stream` and returns; throws Error when a launch fails.
void input(const InputOperands& operands, cudaStream_t stream);

}  // namespace ringtrain::cuda::kernels
