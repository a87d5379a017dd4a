#pragma once
#include <cstdint>

#include "io/image/resize.hpp"
#include "ringtrain/base/batch.hpp"
#include "ringtrain/base/philox.hpp"
#include "ringtrain/io/image/augmentation.hpp"

namespace ringtrain::io {

/// How an image becomes the network's input: `box` of it is scaled to `scaled`, and the output
/// shows that from (top, left) on, black outside, perhaps mirrored.
struct CropTransform {
  Box box;
  Extent scaled;
  int top = 0, left = 0;
  bool mirrored = false;
};

CropTransform evaluation_framing(const Augmentation& recipe, Extent image);
CropTransform training_framing(const Augmentation& recipe, Extent image, Philox& random);
ColorJitter draw_distortion(const Augmentation& recipe, Philox& random);

/// What rendering the framing needs of an image of extent `full`. A reduced image is still twice as
/// large as what is made of it, as Pillow's thumbnails are: less would show.
CropRequest need_of(const CropTransform& framing, Extent full, Extent output);

/// Renders framings; one a thread.
class Renderer {
 public:
  /// Writes an output.height x output.width image to `out`, from what need_of() asks for or more.
  void run(const PixelView& image, const CropTransform& framing, Extent output, std::uint8_t* out);

 private:
  Resizer resizer_;
};

}  // namespace ringtrain::io
