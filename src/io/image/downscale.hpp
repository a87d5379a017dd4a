#pragma once
#include <memory>
#include <span>
#include <vector>

#include "io/image/decoder.hpp"
#include "io/image/resize.hpp"

namespace ringtrain::io {

/// Makes large encoded images smaller. Keeps its memory from image to image; for one thread.
class Downscaler {
 public:
  /// The shorter side becomes `short_side` pixels.
  Downscaler(int short_side, std::uint64_t max_pixels)
      : short_side_(short_side), decoder_(make_image_decoder(max_pixels)) {}

  /// `image` as it is where its shorter side is not longer, else a JPEG image of quality 95, valid
  /// until the next call. Throws Undecodable.
  std::span<const std::uint8_t> run(std::span<const std::uint8_t> image);

 private:
  const int short_side_;
  std::unique_ptr<Decoder> decoder_;
  Resizer resizer_;
  Image full_, small_;
  std::vector<std::uint8_t> encoded_;
};

/// Encodes `image` as baseline JPEG with chroma at half the resolution, as most photographs have
/// it.
void encode_jpeg(const ImageView& image, int quality, std::vector<std::uint8_t>& bytes);

}  // namespace ringtrain::io
