#include "io/image/resize.hpp"

#include <algorithm>
#include <cmath>

namespace ringtrain::io {
namespace {

double triangle(double x) { return std::max(0.0, 1 - std::abs(x)); }

// Keys's cubic convolution with a = -1/2.
double cubic(double x) {
  x = std::abs(x);
  if (x < 1) return (1.5 * x - 2.5) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * -0.5;
  return 0;
}

std::int32_t fixed_point(double weight) {
  return static_cast<std::int32_t>((weight < 0 ? -0.5 : 0.5) +
                                   weight * (1 << AxisFilter::fraction_bits));
}

/// An axis of `source` pixels of which [start, start + length) is scaled to `scaled`, and of that
/// the `count` outputs from `begin` on are wanted.
struct Axis {
  int source;
  double start, length;
  int scaled, begin, count;
  bool mirrored = false;
  Interpolation interpolation = Interpolation::bilinear;

  double scale() const { return length / scaled; }
  double stretch() const { return std::max(scale(), 1.0); }
  double reach() const { return stretch() * reach_of(interpolation); }
  /// Those that can count for one output.
  int taps() const { return std::min(static_cast<int>(std::ceil(2 * reach())), source); }
};

/// Plans an axis; `taps` are no fewer than it has and no more than source pixels.
void plan(const Axis& axis, int taps, std::vector<double>& exact, AxisFilter& filter) {
  const double scale = axis.scale(), stretch = axis.stretch(), reach = axis.reach();
  const auto filter_at = axis.interpolation == Interpolation::bicubic ? cubic : triangle;
  filter.taps = taps;
  filter.first.resize(axis.count);
  // One kernel reads eight weights at once.
  filter.weights.assign(std::size_t(axis.count) * taps + 8, 0);
  exact.resize(taps);

  for (int i = 0; i < axis.count; ++i) {
    const int output = axis.begin + (axis.mirrored ? axis.count - 1 - i : i);
    const double centre = axis.start + (output + 0.5) * scale;
    const int first = std::max(0, static_cast<int>(centre - reach + 0.5));
    // Rounding may find one more, which weighs nothing.
    const int end = std::min({axis.source, static_cast<int>(centre + reach + 0.5), first + taps});
    double sum = 0;
    for (int k = 0; k < end - first; ++k)
      sum += exact[k] = filter_at((first + k - centre + 0.5) / stretch);
    filter.first[i] = std::min(first, axis.source - taps);
    std::int32_t* weights = &filter.weights[std::size_t(i) * taps + first - filter.first[i]];
    for (int k = 0; k < end - first; ++k) weights[k] = fixed_point(exact[k] / sum);
  }
}

int rounded_up(int value, int multiple) { return (value + multiple - 1) / multiple * multiple; }

/// Memory for `size` values, which stays: giving back and taking again would clear it each time.
template <class T>
void grow(std::vector<T>& memory, std::size_t size) {
  if (memory.size() < size) memory.resize(size);
}

}  // namespace

double reach_of(Interpolation interpolation) {
  return interpolation == Interpolation::bicubic ? 2 : 1;
}

void Resizer::run(const ImageView& image, const Box& box, Extent scaled, const ScaledWindow& window,
                  bool mirrored, std::uint8_t* out, std::size_t stride,
                  Interpolation interpolation) {
  const auto [height, width] = window.extent;
  if (height == 0 || width == 0) return;
  const Axis x{image.extent.width, box.left, box.width, scaled.width,
               window.left,        width,    mirrored,  interpolation};
  const Axis y{image.extent.height, box.top, box.height, scaled.height,
               window.top,          height,  false,      interpolation};
  const int taps = rounded_up(x.taps(), kernels_.taps);
  const bool fits = taps <= x.source;
  plan(x, fits ? taps : x.taps(), exact_, across_);
  plan(y, y.taps(), exact_, down_);

  const int first = down_.first.front(), end = down_.first.back() + down_.taps;
  const std::size_t row = std::size_t(width) * Image::channels;
  const std::size_t source_row = std::size_t(image.extent.width) * Image::channels;
  grow(rows_, (end - first + 1) * row);  // an odd row is scaled twice
  grow(sums_, 2 * (row + 1));
  for (int i = first; i < end; i += 2) {
    const std::size_t next = i + 1 < end ? source_row : 0;
    const bool last = i + 2 >= y.source;
    const auto across = fits && !last ? kernels_.across : plain_row_kernels().across;
    across(across_, &image.pixels[i * source_row], next, sums_.data(), &rows_[(i - first) * row]);
  }
  for (int i = 0; i < height; ++i)
    kernels_.down({&rows_[(down_.first[i] - first) * row],
                   &down_.weights[std::size_t(i) * down_.taps], down_.taps, row},
                  sums_.data(), out + i * stride);
}

}  // namespace ringtrain::io
