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
    typedef int Lanes __attribute__((vector_size(16)));
    for (int o = 0; o < block; o += 4)
      for (int i = 0; i < block; i += 4) {
        Four row[4];
        for (int k = 0; k < 4; ++k) std::memcpy(&row[k], from + (o + k) * step + i, sizeof row[k]);
        for (int half = 0; half < 2; ++half) {
          const Lanes pairs = half == 0 ? Lanes{0, 4, 1, 5} : Lanes{2, 6, 3, 7};
          const Four even = __builtin_shuffle(row[0], row[2], pairs),
                     odd = __builtin_shuffle(row[1], row[3], pairs);
          float* const to = square + (i + 2 * half) * block + o;
          const Four first = __builtin_shuffle(even, odd, Lanes{0, 4, 1, 5}),
                     second = __builtin_shuffle(even, odd, Lanes{2, 6, 3, 7});
          std::memcpy(to, &first, sizeof first);
          std::memcpy(to + block, &second, sizeof second);
        }
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
