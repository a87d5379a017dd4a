#pragma once
#include <cstdint>
#include <span>

#include "ringtrain/base/batch.hpp"
#include "ringtrain/base/philox.hpp"
#include "ringtrain/io/image/augmentation.hpp"

namespace ringtrain::io {

/// What two images exchange. Both keep this part of themselves.
struct Mix {
  static constexpr std::uint32_t one = 1 << 16;

  std::uint32_t kept = one;                      ///< of 65,536
  int top = 0, left = 0, height = 0, width = 0;  ///< CutMix: the box; height 0: there is none
  constexpr bool cuts() const { return height > 0; }
};

/// What a pair of images of this extent draws.
Mix draw_mix(const Mixing& mixing, Extent extent, Philox random);

/// One of two images that are mixed.
struct MixedImage {
  std::span<std::uint8_t> pixels;
  Target& target;
};
/// Mixes both with each other: pixels of `extent` with `channels` each, and targets. The class of
/// which a mixture has more becomes its label.
void mix(const Mix& drawn, Extent extent, int channels, MixedImage a, MixedImage b);

}  // namespace ringtrain::io
