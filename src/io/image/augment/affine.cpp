#include "io/image/augment/affine.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <numbers>
#include <optional>

// Sums and products stand in Pillow's order, in double: another order, or a fused one, would now
// and then give another grey level.
namespace ringtrain::io {
namespace {

/// A place between pixels along one axis: behind pixel `first`, by `part` of a pixel.
struct Between {
  int first;
  double part;
};

// `at` is at least -1/2.
Between between(double at) {
  int first = static_cast<int>(at);
  if (at < first) --first;
  return {first, at - first};
}

/// Pixels at the edge go on outside.
int within(int pixel, int size) { return std::clamp(pixel, 0, size - 1); }

double blend(int a, int b, double part) { return a + (b - a) * part; }

struct Bilinear {
  static void sample(const ImageView& source, Between x, Between y, std::uint8_t* out) {
    const auto [height, width] = source.extent;
    const std::size_t row = std::size_t(width) * Image::channels;
    const std::uint8_t* upper = &source.pixels[within(y.first, height) * row];
    const std::uint8_t* lower = &source.pixels[within(y.first + 1, height) * row];
    const int left = within(x.first, width) * Image::channels;
    const int right = within(x.first + 1, width) * Image::channels;
    for (int c = 0; c < Image::channels; ++c) {
      const double above = blend(upper[left + c], upper[right + c], x.part);
      const double below = blend(lower[left + c], lower[right + c], x.part);
      out[c] = static_cast<std::uint8_t>(above + (below - above) * y.part);
    }
  }
};

struct Bicubic {
  template <class Number>
  static double cubic(const std::array<Number, 4>& v, double part) {
    const double p2 = -v[0] + v[2];
    const double p3 = 2 * (v[0] - v[1]) + v[2] - v[3];
    const double p4 = -v[0] + v[1] - v[2] + v[3];
    return v[1] + part * (p2 + part * (p3 + part * p4));
  }

  static void sample(const ImageView& source, Between x, Between y, std::uint8_t* out) {
    const auto [height, width] = source.extent;
    std::array<const std::uint8_t*, 4> rows;
    std::array<int, 4> columns;
    for (int k = 0; k < 4; ++k) {
      rows[k] =
          &source.pixels[std::size_t(within(y.first - 1 + k, height)) * width * Image::channels];
      columns[k] = within(x.first - 1 + k, width) * Image::channels;
    }
    for (int c = 0; c < Image::channels; ++c) {
      std::array<double, 4> across;
      for (int k = 0; k < 4; ++k)
        across[k] = cubic<int>({rows[k][columns[0] + c], rows[k][columns[1] + c],
                                rows[k][columns[2] + c], rows[k][columns[3] + c]},
                               x.part);
      out[c] = static_cast<std::uint8_t>(std::clamp(cubic(across, y.part), 0.0, 255.0));
    }
  }
};

template <class Filter>
void sample_all(const ImageView& source, const AffineMap& m, const Colour& outside,
                std::uint8_t* out) {
  const auto [height, width] = source.extent;
  for (int row = 0; row < height; ++row)
    for (int column = 0; column < width; ++column, out += Image::channels) {
      const double x_out = column + 0.5, y_out = row + 0.5;
      const double x = m.a * x_out + m.b * y_out + m.c, y = m.d * x_out + m.e * y_out + m.f;
      if (x < 0 || x >= width || y < 0 || y >= height)
        std::memcpy(out, outside.data(), Image::channels);
      else
        Filter::sample(source, between(x - 0.5), between(y - 0.5), out);
    }
}

/// By how many pixels `m` moves the image, where it does no more.
struct Shift {
  int right, down;
};
std::optional<Shift> whole_shift(const AffineMap& m, Extent extent) {
  if (m.a != 1 || m.b != 0 || m.d != 0 || m.e != 1) return std::nullopt;
  if (m.c != std::floor(m.c) || m.f != std::floor(m.f)) return std::nullopt;
  const auto at_most = [](double by, int size) {
    return static_cast<int>(std::clamp<double>(-by, -size, size));
  };
  return Shift{at_most(m.c, extent.width), at_most(m.f, extent.height)};
}

void fill(std::uint8_t* out, int pixels, const Colour& colour) {
  for (int p = 0; p < pixels; ++p)
    std::memcpy(out + p * Image::channels, colour.data(), Image::channels);
}

void shift_all(const ImageView& source, Shift by, const Colour& outside, std::uint8_t* out) {
  const auto [height, width] = source.extent;
  const int kept = width - std::abs(by.right);
  const int from = std::max(-by.right, 0), to = std::max(by.right, 0);
  for (int row = 0; row < height; ++row, out += width * Image::channels) {
    const int source_row = row - by.down;
    if (source_row < 0 || source_row >= height || kept == 0) {
      fill(out, width, outside);
      continue;
    }
    const std::size_t first = std::size_t(source_row) * width + from;
    std::memcpy(out + to * Image::channels, &source.pixels[first * Image::channels],
                kept * Image::channels);
    fill(out + (to > 0 ? 0 : kept * Image::channels), width - kept, outside);
  }
}

// To 15 digits, as Pillow does, so that quarter turns are exact. A product with 1e15 would be
// rounded itself.
double as_pillow_rounds(double value) {
  std::array<char, 32> text;
  const char* const end =
      std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed, 15)
          .ptr;
  std::from_chars(text.data(), end, value);
  return value;
}

}  // namespace

AffineMap rotation(double degrees, Extent extent) {
  const double turn = std::fmod(degrees, 360) + (degrees < 0 ? 360 : 0);
  const double angle = -(turn * (std::numbers::pi / 180));
  const double cosine = as_pillow_rounds(std::cos(angle)), sine = as_pillow_rounds(std::sin(angle));
  const double x = extent.width / 2.0, y = extent.height / 2.0;
  return {cosine, sine, cosine * -x + sine * -y + x, -sine, cosine, -sine * -x + cosine * -y + y};
}

void transform(const ImageView& source, const AffineMap& map, Interpolation interpolation,
               const Colour& outside, std::uint8_t* out) {
  if (const auto shift = whole_shift(map, source.extent))
    shift_all(source, *shift, outside, out);
  else if (interpolation == Interpolation::bicubic)
    sample_all<Bicubic>(source, map, outside, out);
  else
    sample_all<Bilinear>(source, map, outside, out);
}

}  // namespace ringtrain::io
