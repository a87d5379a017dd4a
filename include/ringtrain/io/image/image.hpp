#pragma once
// Room `io/image`: decodes JPEG and PNG files, cuts out, scales and augments them, on 8-bit pixels.
// The same bytes and numbers give the same pixels on every CPU.
//
// Threads: functions keep nothing; an object belongs to one.
//
// A file that cannot be decoded is an UnreadableSample, whatever its bytes are.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ringtrain::io {

struct Extent {
  int height = 0, width = 0;
  std::size_t pixels() const { return std::size_t(height) * width; }
  friend bool operator==(const Extent&, const Extent&) = default;
};

/// How pixels of another size are made: Pillow's filters of these names, which widen with the
/// reduction.
enum class Interpolation { bilinear, bicubic };

/// Someone else's 8-bit RGB image: interleaved, row after row, without gaps.
struct ImageView {
  Extent extent;
  std::span<const std::uint8_t> pixels;
};

/// What someone needs of an image: `extent` of its pixels from (top, left) on, which lie in it.
/// They may come reduced: `reduction` x `reduction` of them as one.
struct CropRequest {
  int top = 0, left = 0;
  Extent extent;
  int reduction = 1;
  bool alpha = false;  ///< what is transparent matters, too
};

/// What they get, of at least what they need: the first pixel of `pixels` is the (top, left)-th of
/// the image reduced by `reduction`, so it shows the original from reduction * (top, left) on.
struct PixelView {
  ImageView pixels;
  int top = 0, left = 0;
  int reduction = 1;
  /// The same pixels' opacity, as grey levels. Empty where it was not asked for, and where all are
  /// opaque.
  ImageView alpha = {};
};

/// An image that owns its pixels.
struct Image {
  static constexpr int channels = 3;

  Extent extent;
  std::vector<std::uint8_t> pixels;

  /// Changes the extent, keeping memory; the pixels are then unspecified.
  void reshape(Extent wanted) {
    extent = wanted;
    pixels.resize(wanted.pixels() * channels);
  }
  ImageView view() const { return {extent, pixels}; }
};

/// An 8-bit colour: red, green and blue.
using Colour = std::array<std::uint8_t, Image::channels>;

}  // namespace ringtrain::io
