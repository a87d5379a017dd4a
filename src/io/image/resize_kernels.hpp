#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

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

}  // namespace ringtrain::io
