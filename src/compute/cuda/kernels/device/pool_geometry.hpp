#pragma once
#include "compute/cuda/kernels/arguments/geometry.hpp"
#include "compute/cuda/kernels/arguments/pool.hpp"
#include "compute/cuda/kernels/device/lanes.hpp"

// Where the windows of pools lie, for their kernels.
namespace ringtrain::cuda::kernels::work {

/// One direction of a window: where it lies on the image, and which windows cover a pixel.
struct Axis {
  int image, windows, kernel, stride, before;

  constexpr int first_tap(int window) const {
    const int start = window * stride - before;
    return start > 0 ? start : 0;
  }
  constexpr int end_tap(int window) const {
    const int end = window * stride - before + kernel;
    return end < image ? end : image;
  }
  constexpr int taps(int window) const { return end_tap(window) - first_tap(window); }
  constexpr int first_window(int pixel) const {
    const int past = pixel + before - kernel;
    return past < 0 ? 0 : past / stride + 1;
  }
  constexpr int end_window(int pixel) const {
    const int end = (pixel + before) / stride + 1;
    return end < windows ? end : windows;
  }
};

/// The geometry of a pool, and where vectors of `w` channels lie.
template <int w>
struct PoolGeometry {
  Axis rows, columns;
  int channels;
  std::size_t y_pitch;

  explicit constexpr PoolGeometry(const PoolOperands& o)
      : rows{o.x_shape.height, o.y_shape.height, o.window.height, o.window.stride_y, o.window.top},
        columns{o.x_shape.width, o.y_shape.width, o.window.width, o.window.stride_x, o.window.left},
        channels(o.x_shape.channels),
        y_pitch(pitch_or(o.y_pitch, o.x_shape.channels)) {}

  struct Place {
    int sample, row, column, channel;
  };
  constexpr Place place(std::uint32_t pixel, std::uint32_t channel, int height, int width) const {
    const std::uint32_t line = pixel / width;
    return {static_cast<int>(line / height), static_cast<int>(line % height),
            static_cast<int>(pixel % width), static_cast<int>(channel)};
  }
  constexpr Place window_of(std::uint32_t item) const {
    const std::uint32_t vectors = static_cast<std::uint32_t>(channels / w);
    return place(item / vectors, item % vectors * w, rows.windows, columns.windows);
  }
  constexpr Place pixel_of(std::uint32_t item) const {
    const std::uint32_t vectors = static_cast<std::uint32_t>(channels / w);
    return place(item / vectors, item % vectors * w, rows.image, columns.image);
  }
  constexpr std::size_t x_index(const Place& at, int row, int column) const {
    return ((std::size_t(at.sample) * rows.image + row) * columns.image + column) * channels +
           at.channel;
  }
  constexpr std::size_t y_index(const Place& at, int row, int column) const {
    return ((std::size_t(at.sample) * rows.windows + row) * columns.windows + column) * y_pitch +
           at.channel;
  }
  /// Of a byte a window and channel, dense.
  constexpr std::size_t winner_index(const Place& at, int row, int column) const {
    return ((std::size_t(at.sample) * rows.windows + row) * columns.windows + column) * channels +
           at.channel;
  }
  /// The number of a pixel among the taps of a window, in row order; -1 outside.
  constexpr int tap(int row, int column, int pixel_row, int pixel_column) const {
    const int y = pixel_row - (row * rows.stride - rows.before);
    const int x = pixel_column - (column * columns.stride - columns.before);
    const bool inside = y >= 0 && y < rows.kernel && x >= 0 && x < columns.kernel;
    return inside ? y * columns.kernel + x : -1;
  }
  /// Calls f(row, column) for the pixels of a window, in row order.
  template <class F>
  constexpr void for_each_tap(int row, int column, F f) const {
    for (int y = rows.first_tap(row); y < rows.end_tap(row); ++y)
      for (int x = columns.first_tap(column); x < columns.end_tap(column); ++x) f(y, x);
  }
  /// Calls f(row, column) for the windows that cover a pixel.
  template <class F>
  constexpr void for_each_window(int row, int column, F f) const {
    for (int y = rows.first_window(row); y < rows.end_window(row); ++y)
      for (int x = columns.first_window(column); x < columns.end_window(column); ++x) f(y, x);
  }
};

inline bool is_wide_pool(const PoolOperands& o, std::initializer_list<const void*> pointers) {
  return is_wide(o.element, {std::size_t(o.x_shape.channels), o.y_pitch}, pointers);
}

}  // namespace ringtrain::cuda::kernels::work
