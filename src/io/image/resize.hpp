#pragma once
#include <cstdint>
#include <vector>

#include "io/image/resize_kernels.hpp"
#include "ringtrain/io/image/image.hpp"

namespace ringtrain::io {

/// A part of an image in pixels, edges between pixels allowed.
struct Box {
  double left = 0, top = 0, width = 0, height = 0;
};

/// Places of a scaled image: [top, top + extent.height) x [left, left + extent.width).
struct ScaledWindow {
  int top = 0, left = 0;
  Extent extent;
};

/// Scales images with a triangle filter that widens with the reduction, so that it is bilinear
/// enlarging and anti-aliased reducing: Pillow's BILINEAR, to the bit. Keeps its tables and rows.
class Resizer {
 public:
  explicit Resizer(const RowKernels& kernels = usable_row_kernels().front()) : kernels_(kernels) {}

  /// Writes `window` of `box` of `image` scaled to `scaled`, row after row of `stride` bytes. The
  /// window lies within `scaled`, the box within the image. `mirrored` turns the window around.
  void run(const ImageView& image, const Box& box, Extent scaled, const ScaledWindow& window,
           bool mirrored, std::uint8_t* out, std::size_t stride);

 private:
  RowKernels kernels_;
  AxisFilter across_, down_;
  std::vector<double> exact_;       // weights of the output being planned
  std::vector<std::uint8_t> rows_;  // the source rows in use, scaled across
  std::vector<std::int32_t> sums_;  // of one output row
};

}  // namespace ringtrain::io
