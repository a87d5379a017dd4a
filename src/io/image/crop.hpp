#pragma once
#include <cstdint>

#include "io/image/resize.hpp"

namespace ringtrain::io {

/// How an image becomes the network's input: `box` of it is scaled to `scaled`, and the output
/// shows that from (top, left) on, perhaps mirrored. Outside is black.
struct CropTransform {
  Box box;
  Extent scaled;
  int top = 0, left = 0;
  bool mirrored = false;
  Interpolation interpolation = Interpolation::bilinear;
  bool reflected = false;  ///< outside is the image, mirrored at its edge, not black
};

/// What rendering `crop` needs of an image of extent `full`. A reduced image is still twice as
/// large as what is made of it, as Pillow's thumbnails are: less would show.
CropRequest request_for(const CropTransform& crop, Extent full, Extent output);

/// Renders crops; one a thread.
class Renderer {
 public:
  /// Writes an output.height x output.width image to `out`, from what request_for() asks for or
  /// more.
  void run(const PixelView& image, const CropTransform& crop, Extent output, std::uint8_t* out);

 private:
  Resizer resizer_;
};

}  // namespace ringtrain::io
