#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/memory/view.hpp"

namespace ringtrain::compute::cuda::kernels {

/// What a kernel is launched with. No blocks: there is nothing to do.
struct Grid {
  std::uint32_t blocks = 0, threads = 0;
  std::size_t shared_bytes = 0;
  friend bool operator==(const Grid&, const Grid&) = default;
};

inline constexpr std::uint32_t block_threads = 256;

/// How many blocks a multiprocessor must have room for, which bounds their registers. Work that
/// does not say leaves it to the compiler.
template <class Work>
inline constexpr unsigned least_blocks = 0;
template <class Work>
requires requires { Work::least_blocks; }
inline constexpr unsigned least_blocks<Work> = Work::least_blocks;

constexpr std::size_t divide_up(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

/// A thread for each item up to what fills any GPU several times; threads stride over the rest.
constexpr Grid item_grid(std::size_t items) {
  constexpr std::size_t most = 16384;
  return {static_cast<std::uint32_t>(std::min(divide_up(items, block_threads), most)),
          block_threads, 0};
}

/// Whether 16 bytes can be read and written at once: all `extents` (channels, pitches, first
/// channels, counts) are multiples of that many elements and all pointers (null ones too) aligned.
inline bool is_wide(Element element, std::initializer_list<std::size_t> extents,
                    std::initializer_list<const void*> pointers) {
  const std::size_t width = 16 / bytes_of(element);
  return std::ranges::all_of(extents, [&](std::size_t n) { return n % width == 0; }) &&
         std::ranges::all_of(pointers, [](const void* pointer) {
           return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0;
         });
}

/// Elements from pixel to pixel of an NHWC tensor: its own channels, unless it is a slice of a
/// wider one, whose channels `given` says.
constexpr std::size_t pitch_or(std::size_t given, std::size_t channels) {
  return given > 0 ? given : channels;
}

/// Narrows a count that kernels keep in 32 bits, leaving room to stride past it.
inline std::uint32_t small(std::size_t count) {
  expects(count < (std::size_t(1) << 31), "cuda kernels: less than 2^31 pixels or vectors");
  return static_cast<std::uint32_t>(count);
}

/// How blocks share out an NHWC tensor of `pixels` x `vectors` of channels: a thread keeps to one
/// vector, so that it loads that vector's numbers once, and strides over pixels. Neighbouring
/// threads have neighbouring vectors.
struct ChannelGrid {
  std::uint32_t pixels = 0, vectors = 0;
  std::uint32_t columns = 1, rows = 1;  ///< of a block: vectors x pixels
  std::uint32_t column_blocks = 1, row_blocks = 1;

  constexpr std::uint32_t blocks() const { return column_blocks * row_blocks; }
  constexpr std::uint32_t threads() const { return columns * rows; }
  constexpr std::uint32_t row(std::uint32_t thread) const { return thread / columns; }
  constexpr std::uint32_t row_block(std::uint32_t block) const { return block / column_blocks; }
  /// The thread's vector; it has none when this is `vectors` or more.
  constexpr std::uint32_t vector(std::uint32_t block, std::uint32_t thread) const {
    return block % column_blocks * columns + thread % columns;
  }
  constexpr std::uint32_t first_pixel(std::uint32_t block, std::uint32_t thread) const {
    return row_block(block) * rows + row(thread);
  }
  constexpr std::uint32_t pixel_stride() const { return row_blocks * rows; }
};

/// About `pixels_each` pixels a thread (more when that takes more than `most_blocks` blocks). The
/// same on every GPU, so that sums are.
inline ChannelGrid channel_grid(std::size_t pixels, std::size_t vectors, std::size_t pixels_each,
                                std::size_t most_blocks) {
  constexpr std::size_t most_columns = 32;
  ChannelGrid grid{.pixels = small(pixels), .vectors = small(vectors)};
  grid.column_blocks = small(divide_up(vectors, most_columns));
  if (vectors == 0) return grid;
  grid.columns = small(divide_up(vectors, grid.column_blocks));
  grid.rows = block_threads / grid.columns;
  const std::size_t most_row_blocks = std::max<std::size_t>(1, most_blocks / grid.column_blocks);
  grid.row_blocks = small(
      std::clamp<std::size_t>(divide_up(pixels, grid.rows * pixels_each), 1, most_row_blocks));
  return grid;
}

/// In how many rounds `count` values in a row are folded into the first: ceil(log2(count)).
constexpr int folds(std::uint32_t count) {
  int rounds = 0;
  while ((std::uint32_t(1) << rounds) < count) ++rounds;
  return rounds;
}

/// The value that `index` takes over in `round` of folding `count`, or `count` when none.
constexpr std::uint32_t fold_partner(std::uint32_t index, int round, std::uint32_t count) {
  const std::uint32_t reach = std::uint32_t(1) << (folds(count) - 1 - round);
  return index < reach && index + reach < count ? index + reach : count;
}

}  // namespace ringtrain::compute::cuda::kernels
