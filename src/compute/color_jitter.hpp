#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>

#include "ringtrain/base/batch.hpp"

namespace ringtrain::compute {

/// Turns and stretches one colour, in any unit: hue by `turn` of a circle, saturation by `factor`,
/// both in HSV as TensorFlow's adjust_hue and adjust_saturation define them; the value stays.
template <class T>
constexpr void adjust_saturation_and_hue(T& red, T& green, T& blue, T factor, T turn) {
  const T value = std::max({red, green, blue}), range = value - std::min({red, green, blue});
  if (!(range > 0)) return;
  T hue = value == red     ? (green - blue) / range
          : value == green ? (blue - red) / range + 2
                           : (red - green) / range + 4;  // in sixths of the circle
  hue += 6 * turn;
  hue -= 6 * std::floor(hue / 6);
  const T saturation = value > 0 ? std::min(range / value * factor, T(1)) : T(0);
  // Smith 1978, "Color gamut transform pairs", without branches.
  const auto channel = [&](T n) {
    const T k = n + hue >= 6 ? n + hue - 6 : n + hue;
    return value - value * saturation * std::clamp(std::min(k, 4 - k), T(0), T(1));
  };
  red = channel(5);
  green = channel(3);
  blue = channel(1);
}

/// Applies a jitter to one image of interleaved channels on the scale 0..255: brightness, then
/// saturation and hue (three channels only), then contrast around each channel's mean.
template <class T>
void apply_jitter(const ColorJitter& d, std::span<T> image, int channels) {
  if (d.brightness != 0)
    for (T& v : image) v += d.brightness;
  if (channels == 3 && (d.saturation != 1 || d.hue != 0))
    for (std::size_t i = 0; i + 2 < image.size(); i += 3)
      adjust_saturation_and_hue<T>(image[i], image[i + 1], image[i + 2], d.saturation, d.hue);
  if (d.contrast == 1) return;
  const std::size_t pixels = image.size() / static_cast<std::size_t>(channels);
  for (int c = 0; c < channels; ++c) {
    double sum = 0;  // a float loses digits over a whole image
    for (std::size_t i = c; i < image.size(); i += channels) sum += image[i];
    const T mean = static_cast<T>(sum / static_cast<double>(pixels));
    for (std::size_t i = c; i < image.size(); i += channels)
      image[i] = (image[i] - mean) * d.contrast + mean;
  }
}

/// Cuts off what jitter carried out of the scale 0..255.
template <class T>
constexpr T clipped(T v) {
  return std::clamp(v, T(0), T(255));
}

}  // namespace ringtrain::compute
