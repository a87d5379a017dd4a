#pragma once
#include <vector>

#include "compute/cuda/kernels/arguments/weights.hpp"
#include "ringtrain/compute/shape.hpp"

namespace ringtrain {

/// A convolution and the form in which a GPU stores its image: blocks of 2x2 pixels, each window's
/// row of them in one pixel; or channels padded to `channels`, which are those of a block
/// otherwise. Told pixel by pixel, as an oracle for kernels.
struct StoredForm {
  compute::Window window;
  compute::Shape x, y;
  bool blocks;
  int channels;

  static int floor_of_half(int n) { return n >= 0 ? n / 2 : -((1 - n) / 2); }
  /// The block in which windows of the first row, or column, begin; and how many they touch.
  static int first_block(int padding) { return floor_of_half(-padding); }
  static int block_count(int size, int padding) {
    return floor_of_half(size - 1 - padding) - first_block(padding) + 1;
  }
  /// The window that reads the stored image as `window` reads the image.
  compute::Window stored_window() const {
    if (!blocks) return window;
    return {block_count(window.height, window.top), 1};
  }
  int blocks_across() const { return blocks ? block_count(window.width, window.left) : 1; }
  compute::Shape stored_x() const {
    if (!blocks) return {x.batch, x.height, x.width, channels};
    return {x.batch, y.height + stored_window().height - 1, y.width, channels * blocks_across()};
  }
  compute::cuda::kernels::WeightForm weights() const {
    const compute::Window w = stored_window();
    return {y.channels, window.height, window.width, x.channels,
            window.top, window.left,   w.height,     blocks ? blocks_across() : w.width,
            channels,   blocks};
  }
  /// `image`, of shape x, as it is stored.
  std::vector<double> stored(const std::vector<double>& image) const {
    std::vector<double> result;
    const compute::Shape s = stored_x();
    for (int n = 0; n < s.batch; ++n)
      for (int row = 0; row < s.height; ++row)
        for (int column = 0; column < s.width; ++column)
          for (int c = 0; c < s.channels; ++c) result.push_back(value(image, n, row, column, c));
    return result;
  }

 private:
  double value(const std::vector<double>& image, int n, int row, int column, int channel) const {
    const int block = channel / channels;
    channel %= channels;
    const int part = channel / x.channels;
    if (part >= (blocks ? 4 : 1)) return 0;
    if (blocks) {
      column += block;
      row = 2 * (row + first_block(window.top)) + part / 2;
      column = 2 * (column + first_block(window.left)) + part % 2;
    }
    if (row < 0 || row >= x.height || column < 0 || column >= x.width) return 0;
    return image[((n * x.height + row) * x.width + column) * x.channels + channel % x.channels];
  }
};

/// The extent of a convolution's result.
inline compute::Shape result_of(const compute::Window& w, const compute::Shape& x, int channels) {
  return {x.batch, (x.height + w.top + w.bottom - w.height) / w.stride_y + 1,
          (x.width + w.left + w.right - w.width) / w.stride_x + 1, channels};
}

}  // namespace ringtrain
