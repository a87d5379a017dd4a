#include "io/resize.hpp"

#include <algorithm>
#include <cmath>

namespace ringtrain {
namespace {

constexpr int fraction_bits = 22;  // 8-bit values times weights up to 1 fit 32 bits
constexpr std::int32_t half = 1 << (fraction_bits - 1);

double triangle(double x) { return std::max(0.0, 1 - std::abs(x)); }

std::uint8_t to_byte(std::int32_t sum) {
  return static_cast<std::uint8_t>(std::clamp(sum >> fraction_bits, 0, 255));
}

/// An axis of `source` pixels of which [start, start + length) is scaled to `scaled`, and of that
/// the `count` outputs from `begin` on are wanted.
struct Axis {
  int source;
  double start, length;
  int scaled, begin, count;
  bool mirrored = false;
};

void plan(const Axis& axis, AxisFilter& filter) {
  const double scale = axis.length / axis.scaled;
  const double stretch = std::max(scale, 1.0);
  filter.taps = static_cast<int>(std::ceil(stretch)) * 2 + 1;
  filter.first.resize(axis.count);
  filter.count.resize(axis.count);
  filter.weights.resize(std::size_t(axis.count) * filter.taps);
  filter.exact.resize(filter.taps);

  for (int i = 0; i < axis.count; ++i) {
    const int output = axis.begin + (axis.mirrored ? axis.count - 1 - i : i);
    const double centre = axis.start + (output + 0.5) * scale;
    const int first = std::max(0, static_cast<int>(centre - stretch + 0.5));
    const int end = std::min(axis.source, static_cast<int>(centre + stretch + 0.5));
    double sum = 0;
    for (int k = 0; k < end - first; ++k)
      sum += filter.exact[k] = triangle((first + k - centre + 0.5) / stretch);
    filter.first[i] = first;
    filter.count[i] = end - first;
    for (int k = 0; k < end - first; ++k)
      filter.weights[std::size_t(i) * filter.taps + k] =
          static_cast<std::int32_t>(0.5 + filter.exact[k] / sum * (1 << fraction_bits));
  }
}

void scale_across(const AxisFilter& filter, const std::uint8_t* row, std::uint8_t* out) {
  for (std::size_t i = 0; i < filter.first.size(); ++i) {
    const std::uint8_t* pixel = row + std::size_t(filter.first[i]) * Image::channels;
    const std::int32_t* weight = &filter.weights[i * filter.taps];
    std::int32_t red = half, green = half, blue = half;
    for (int k = 0; k < filter.count[i]; ++k, pixel += Image::channels) {
      red += weight[k] * pixel[0];
      green += weight[k] * pixel[1];
      blue += weight[k] * pixel[2];
    }
    *out++ = to_byte(red);
    *out++ = to_byte(green);
    *out++ = to_byte(blue);
  }
}

/// Rows that follow each other, and what each weighs in their sum.
struct WeightedRows {
  const std::uint8_t* first;
  const std::int32_t* weights;
  int count;
  std::size_t width;
};

// The loops run along the row, where neither pixels nor channels matter and vectors fit. They are
// inlined into one function for each instruction set; which one runs is asked of the CPU.
[[gnu::always_inline]] inline void sum_loop(const WeightedRows& rows, std::int32_t* __restrict sums,
                                            std::uint8_t* __restrict out) {
  const std::size_t width = rows.width;
  std::fill_n(sums, width, half);
  for (int k = 0; k < rows.count; ++k) {
    const std::uint8_t* row = rows.first + k * width;
    const std::int32_t weight = rows.weights[k];
#pragma omp simd
    for (std::size_t i = 0; i < width; ++i) sums[i] += weight * row[i];
  }
#pragma omp simd
  for (std::size_t i = 0; i < width; ++i) out[i] = to_byte(sums[i]);
}

[[gnu::target("avx2")]] void sum_avx2(const WeightedRows& rows, std::int32_t* sums,
                                      std::uint8_t* out) {
  sum_loop(rows, sums, out);
}

void sum_anywhere(const WeightedRows& rows, std::int32_t* sums, std::uint8_t* out) {
  sum_loop(rows, sums, out);
}

}  // namespace

void Resizer::run(const ImageView& image, const Box& box, Extent scaled, const Window& window,
                  bool mirrored, std::uint8_t* out, std::size_t stride) {
  const auto [height, width] = window.extent;
  if (height == 0 || width == 0) return;
  plan({image.extent.width, box.left, box.width, scaled.width, window.left, width, mirrored},
       across_);
  plan({image.extent.height, box.top, box.height, scaled.height, window.top, height}, down_);

  const int first = down_.first.front(), end = down_.first.back() + down_.count.back();
  const std::size_t row = std::size_t(width) * Image::channels;
  const std::size_t source_row = std::size_t(image.extent.width) * Image::channels;
  rows_.resize((end - first) * row);
  sums_.resize(row);
  for (int y = first; y < end; ++y)
    scale_across(across_, &image.pixels[y * source_row], &rows_[(y - first) * row]);
  const auto sum = __builtin_cpu_supports("avx2") ? sum_avx2 : sum_anywhere;
  for (int y = 0; y < height; ++y)
    sum({&rows_[(down_.first[y] - first) * row], &down_.weights[std::size_t(y) * down_.taps],
         down_.count[y], row},
        sums_.data(), out + y * stride);
}

}  // namespace ringtrain
