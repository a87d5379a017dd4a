#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "io/image/augment/affine.hpp"

namespace ringtrain::io {

/// What changes the pixels of an image, by torchvision's and timm's names, and by how much.
struct PixelOperation {
  enum class Kind {
    identity,
    shear_x,        ///< source x = x + magnitude y, from the upper left corner on
    shear_y,        ///< source y = y + magnitude x
    translate_x,    ///< to the right, by pixels
    translate_y,    ///< down
    rotate,         ///< counter-clockwise around the centre, by degrees
    brightness,     ///< factor; 1 changes nothing, as in the next three
    color,          ///< from grey levels
    contrast,       ///< from the mean grey level
    sharpness,      ///< from the smoothed image
    posterize,      ///< bits that stay, 0..8
    solarize,       ///< inverts from this grey level on
    solarize_add,   ///< adds, below 128
    auto_contrast,  ///< stretches each channel to 0..255
    equalize,       ///< flattens each channel's histogram
    invert
  };
  static constexpr int kinds = 16;

  Kind kind = Kind::identity;
  double magnitude = 0;
};

/// As torchvision spells it.
std::string_view name_of(PixelOperation::Kind kind);

/// Someone else's 8-bit RGB image, to be changed in place.
struct PixelSpan {
  Extent extent;
  std::span<std::uint8_t> rgb;
};

/// What geometric operations sample with, and put where the image does not reach.
struct Resampling {
  Interpolation interpolation = Interpolation::bilinear;
  Colour outside = {0, 0, 0};
};

/// Runs pixel operations; the bits are Pillow's. Keeps memory; one a thread.
class PixelOperator {
 public:
  void run(const PixelOperation& operation, const Resampling& resampling, const PixelSpan& image);

 private:
  void transform_by(const AffineMap& map, const Resampling& resampling, const PixelSpan& image);
  void sharpen(float factor, const PixelSpan& image);
  ImageView copy_of(const PixelSpan& image);

  std::vector<std::uint8_t> copy_;
  std::vector<std::uint16_t> sums_;
};

}  // namespace ringtrain::io
