#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "ringtrain/io/image/image.hpp"

namespace ringtrain::io {

/// Which source pixels, from `first` on, make up each output pixel of one axis, and with what
/// weights: `taps` an output, fixed point. Those that do not count weigh 0.
struct AxisFilter {
  static constexpr int fraction_bits = 22;  // 8-bit values times weights up to 1 fit 32 bits

  int taps = 0;
  std::vector<int> first;
  std::vector<std::int32_t> weights;
};

/// Rows that follow each other, `width` values each, and what each weighs in their sum.
struct WeightedRows {
  const std::uint8_t* first;
  const std::int32_t* weights;
  int count;
  std::size_t width;
};

/// The inner loops of resizing, for one instruction set; all give the same bits. Neither throws.
struct RowKernels {
  std::string_view name;
  /// across() takes a multiple of this many taps. Unless it is 1, the rows are followed by another.
  int taps;
  /// Scales two rows of RGB, `row` and `row + next`, which may be the same, into one after the
  /// other. `sums`: memory for 3 numbers an output pixel of both and one more of each.
  void (*across)(const AxisFilter& filter, const std::uint8_t* row, std::size_t next,
                 std::int32_t* sums, std::uint8_t* out);
  /// Sums rows. `sums`: memory for a row.
  void (*down)(const WeightedRows& rows, std::int32_t* sums, std::uint8_t* out);
};

/// What this processor can run, fastest first; plain_row_kernels() are the last.
std::vector<RowKernels> usable_row_kernels();
/// Those that run anywhere.
RowKernels plain_row_kernels();

/// A part of an image in pixels, edges between pixels allowed.
struct Box {
  double left = 0, top = 0, width = 0, height = 0;
};

/// Places of a scaled image: [top, top + extent.height) x [left, left + extent.width).
struct ScaledWindow {
  int top = 0, left = 0;
  Extent extent;
};

/// Source pixels on each side that count where nothing is reduced.
double reach_of(Interpolation interpolation);

/// Scales images with a filter that widens with the reduction, so that it interpolates enlarging
/// and is anti-aliased reducing: Pillow's BILINEAR and BICUBIC, to the bit. Keeps its tables and
/// rows.
class Resizer {
 public:
  explicit Resizer(const RowKernels& kernels = usable_row_kernels().front()) : kernels_(kernels) {}

  /// Writes `window` of `box` of `image` scaled to `scaled`, row after row of `stride` bytes. The
  /// window lies within `scaled`, the box within the image. `mirrored` turns the window around.
  void run(const ImageView& image, const Box& box, Extent scaled, const ScaledWindow& window,
           bool mirrored, std::uint8_t* out, std::size_t stride,
           Interpolation interpolation = Interpolation::bilinear);

 private:
  RowKernels kernels_;
  AxisFilter across_, down_;
  std::vector<double> exact_;       // weights of the output being planned
  std::vector<std::uint8_t> rows_;  // the source rows in use, scaled across
  std::vector<std::int32_t> sums_;  // of one output row
};

}  // namespace ringtrain::io
