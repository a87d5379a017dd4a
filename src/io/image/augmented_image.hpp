#pragma once
#include <cstdint>
#include <functional>
#include <span>

#include "io/image/augment/pixel_operations.hpp"
#include "io/image/crop.hpp"
#include "ringtrain/base/batch.hpp"
#include "ringtrain/base/error.hpp"
#include "ringtrain/base/philox.hpp"
#include "ringtrain/io/image/augmentation.hpp"

namespace ringtrain::io {

/// One image on its way from the data set into a batch. Operations first decide how it is cut out;
/// who asks for pixels() has it cut out, and may then change them in place.
class AugmentedImage {
 public:
  /// Writes the image's `crop` into its place and returns that.
  using Render = std::function<std::span<std::uint8_t>(const CropTransform& crop)>;

  /// An image of extent `stored` as evaluation sees it.
  AugmentedImage(const Augmentation& augmentation, Extent stored, Render render = {});

  const Augmentation& recipe;
  const Extent full;
  /// Of an AlternatingFlip.
  bool alternates = false;
  // of the device
  ColorJitter jitter;
  Erased erased;

  /// What will be cut out. Throws Error once that is done.
  CropTransform& crop() {
    expects(pixels_.empty(), "an image is cropped and flipped before its pixels change");
    return crop_;
  }
  /// The interleaved 8-bit RGB pixels of the output.
  std::span<std::uint8_t> pixels() {
    if (pixels_.empty()) pixels_ = render_(crop_);
    return pixels_;
  }

 private:
  CropTransform crop_;
  Render render_;
  std::span<std::uint8_t> pixels_;
};

/// Applies the operations of the image's recipe, `pixels` those of its policy.
void augment(AugmentedImage& image, Philox& random, PixelOperator& pixels);

}  // namespace ringtrain::io
