#pragma once
#include <algorithm>
#include <cstddef>
#include <cstring>

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
    const int outputs = std::clamp(outputs_ - output, 0, block),
              inputs = std::clamp(inputs_ - input, 0, block);
    if (std::min(outputs, inputs) < block) std::fill_n(square, pixels_ * block * block, 0.f);
    for (int pixel = 0; pixel < pixels_; ++pixel, square += block * block) {
      const float* const from = at(output, rotated ? pixels_ - 1 - pixel : pixel) + input;
      const std::size_t step = std::size_t(pixels_) * inputs_;
      if (rotated)
        for (int o = 0; o < outputs; ++o) std::copy_n(from + o * step, inputs, square + o * block);
      else if (std::min(outputs, inputs) == block)
        transpose(from, step, block, square);
      else
        for (int o = 0; o < outputs; ++o)
          for (int i = 0; i < inputs; ++i) square[i * block + o] = from[o * step + i];
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
  // A whole square, whose rows lie `step` floats apart, to columns of `square`.
  static void transpose(const float* from, std::size_t step, int block, float* square) {
    typedef float Four __attribute__((vector_size(16)));
    const auto store = [&](int i, int o, Four row) {
      std::memcpy(square + i * block + o, &row, sizeof row);
    };
    for (int o = 0; o < block; o += 4)
      for (int i = 0; i < block; i += 4) {
        Four row[4];
        for (int k = 0; k < 4; ++k) std::memcpy(&row[k], from + (o + k) * step + i, sizeof row[k]);
        const Four low02 = __builtin_shufflevector(row[0], row[2], 0, 4, 1, 5),
                   low13 = __builtin_shufflevector(row[1], row[3], 0, 4, 1, 5),
                   high02 = __builtin_shufflevector(row[0], row[2], 2, 6, 3, 7),
                   high13 = __builtin_shufflevector(row[1], row[3], 2, 6, 3, 7);
        store(i, o, __builtin_shufflevector(low02, low13, 0, 4, 1, 5));
        store(i + 1, o, __builtin_shufflevector(low02, low13, 2, 6, 3, 7));
        store(i + 2, o, __builtin_shufflevector(high02, high13, 0, 4, 1, 5));
        store(i + 3, o, __builtin_shufflevector(high02, high13, 2, 6, 3, 7));
      }
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
