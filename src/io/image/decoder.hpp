#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>

#include "ringtrain/io/image/image.hpp"

namespace ringtrain::io {

/// Bytes that are no image, or a damaged or unacceptable one.
class Undecodable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Turns the bytes of one file format into RGB; keeps the library's state and memory from image to
/// image. Both members throw Undecodable.
class Decoder {
 public:
  virtual ~Decoder() = default;
  /// Reads the header of an encoded image, which must stay where it is until pixels() is done.
  virtual Extent open(std::span<const std::uint8_t> bytes) = 0;
  /// Decodes what is needed of the image just opened; `memory` keeps it, and the decoder keeps
  /// opacity until its next image. Once only.
  virtual PixelView pixels(const CropRequest& need, Image& memory) = 0;
};

/// JPEG: baseline and progressive; grey, YCbCr, RGB, CMYK and YCCK. A warning of the library
/// (damaged or missing data, where it is needed) makes the image undecodable, one that costs no
/// pixel (bytes too many between two parts) does not. Reduces by 2, 4 or 8; the pixels needed
/// are, to the bit, those that decoding all of the image gives.
std::unique_ptr<Decoder> make_jpeg_decoder(std::uint64_t max_pixels);
/// PNG: all colour types and depths. 16 bits are scaled to 8; alpha is dropped, the colour stored
/// beside it shows.
std::unique_ptr<Decoder> make_png_decoder(std::uint64_t max_pixels);
/// Any of the formats above, told by content, never by name. Orientation tags are not
/// followed, as the published recipes do not.
std::unique_ptr<Decoder> make_image_decoder(std::uint64_t max_pixels);
/// Whether `bytes`, the first of a file, begin as one of these formats do.
bool begins_as_image(std::span<const std::uint8_t> bytes);

/// Throws Undecodable for an image of no pixels or more than `max_pixels`.
void check_extent(std::uint64_t height, std::uint64_t width, std::uint64_t max_pixels);
/// Throws Undecodable where an image needs more bytes of its format than its file has: so what a
/// header says costs no memory that the file's size does not allow.
void check_bytes(Extent image, std::uint64_t needed, std::uint64_t bytes);

}  // namespace ringtrain::io
