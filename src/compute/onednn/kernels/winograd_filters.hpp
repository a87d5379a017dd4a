#pragma once
#include <algorithm>
#include <cstddef>

#include "ringtrain/compute/shape.hpp"

namespace ringtrain::compute::onednn {

/// The flat buffer's filters: output, pixel of the window, input.
class Filters {
 public:
  Filters(float* flat, const Window& window, int outputs, int inputs)
      : flat_(flat), pixels_(window.height * window.width), outputs_(outputs), inputs_(inputs) {}

  /// Those of a block of inputs and one of outputs, a square of `block` x `block` floats a pixel:
  /// a row an input, or where they are rotated by 180 degrees, an output. Zero where there are
  /// none.
  void read(int input, int output, int block, bool rotated, float* square) const {
    for (int pixel = 0; pixel < pixels_; ++pixel)
      for (int row = 0; row < block; ++row)
        for (int column = 0; column < block; ++column) {
          const int o = output + (rotated ? row : column), i = input + (rotated ? column : row);
          *square++ =
              o < outputs_ && i < inputs_ ? at(o, rotated ? pixels_ - 1 - pixel : pixel)[i] : 0.f;
        }
  }
  /// Of such a square with a row an output.
  void write(int input, int output, int block, const float* square) const {
    for (int o = 0; o < std::min(block, outputs_ - output); ++o)
      for (int pixel = 0; pixel < pixels_; ++pixel)
        std::copy_n(square + (pixel * block + o) * block, std::min(block, inputs_ - input),
                    at(output + o, pixel) + input);
  }

 private:
  float* at(int output, int pixel) const {
    return flat_ + (std::size_t(output) * pixels_ + pixel) * inputs_;
  }
  float* flat_;
  int pixels_, outputs_, inputs_;
};

/// One block of rows and one of columns of filters, pixel by pixel.
template <int pixels>
struct FilterSquares {
  alignas(64) float values[pixels * 16 * 16];
};

}  // namespace ringtrain::compute::onednn
