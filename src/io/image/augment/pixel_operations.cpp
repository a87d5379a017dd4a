#include "io/image/augment/pixel_operations.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace ringtrain::io {
namespace {

// As Pillow's convert("L").
int grey_of(const std::uint8_t* rgb) {
  return static_cast<int>((19595u * rgb[0] + 38470u * rgb[1] + 7471u * rgb[2] + 0x8000u) >> 16);
}

// From `a` through `b` and beyond, truncated, as Pillow's blend().
std::uint8_t blend(int a, int b, float factor) {
  const float value = static_cast<float>(a) + factor * static_cast<float>(b - a);
  return static_cast<std::uint8_t>(static_cast<int>(std::clamp(value, 0.f, 255.f)));
}

template <class Change>
void for_each_value(const PixelSpan& image, Change change) {
  std::uint8_t* const v = image.rgb.data();
  const std::size_t values = image.rgb.size();
#pragma omp simd
  for (std::size_t i = 0; i < values; ++i) v[i] = change(v[i]);
}

/// A new grey level for each, by channel.
using Tables = std::array<std::array<std::uint8_t, 256>, Image::channels>;
using Counts = std::array<std::uint32_t, 256>;

void look_up(const PixelSpan& image, const Tables& tables) {
  std::uint8_t* v = image.rgb.data();
  for (const std::uint8_t* end = v + image.rgb.size(); v != end; v += Image::channels)
    for (int c = 0; c < Image::channels; ++c) v[c] = tables[c][v[c]];
}

std::array<Counts, Image::channels> histograms(const PixelSpan& image) {
  std::array<Counts, Image::channels> counts{};
  const std::uint8_t* v = image.rgb.data();
  for (const std::uint8_t* end = v + image.rgb.size(); v != end; v += Image::channels)
    for (int c = 0; c < Image::channels; ++c) ++counts[c][v[c]];
  return counts;
}

void keep(std::array<std::uint8_t, 256>& table) {
  std::iota(table.begin(), table.end(), std::uint8_t{0});
}

int first_used(const Counts& counts) {
  int level = 0;
  while (level < 255 && counts[level] == 0) ++level;
  return level;
}

int last_used(const Counts& counts) {
  int level = 255;
  while (level > 0 && counts[level] == 0) --level;
  return level;
}

void stretch(const Counts& counts, std::array<std::uint8_t, 256>& table) {
  const int low = first_used(counts), high = last_used(counts);
  if (high <= low) return keep(table);
  const double scale = 255.0 / (high - low), offset = -low * scale;
  for (int level = 0; level < 256; ++level)
    table[level] =
        static_cast<std::uint8_t>(std::clamp(static_cast<int>(level * scale + offset), 0, 255));
}

void flatten(const Counts& counts, std::array<std::uint8_t, 256>& table) {
  const std::uint32_t all = std::accumulate(counts.begin(), counts.end(), 0u);
  const std::uint32_t step = (all - counts[last_used(counts)]) / 255;
  if (step == 0) return keep(table);
  std::uint32_t below = step / 2;
  for (int level = 0; level < 256; ++level) {
    table[level] = static_cast<std::uint8_t>(std::min(below / step, 255u));
    below += counts[level];
  }
}

template <class Make>
void change_levels(const PixelSpan& image, Make make) {
  const std::array<Counts, Image::channels> counts = histograms(image);
  Tables tables;
  for (int c = 0; c < Image::channels; ++c) make(counts[c], tables[c]);
  look_up(image, tables);
}

void saturate(float factor, const PixelSpan& image) {
  std::uint8_t* v = image.rgb.data();
  for (const std::uint8_t* end = v + image.rgb.size(); v != end; v += Image::channels) {
    const int grey = grey_of(v);
    for (int c = 0; c < Image::channels; ++c) v[c] = blend(grey, v[c], factor);
  }
}

int mean_grey(const PixelSpan& image) {
  std::uint64_t sum = 0;
  const std::uint8_t* v = image.rgb.data();
  for (const std::uint8_t* end = v + image.rgb.size(); v != end; v += Image::channels)
    sum += grey_of(v);
  return static_cast<int>(static_cast<double>(sum) / static_cast<double>(image.extent.pixels()) +
                          0.5);
}

void add_rows(const std::uint8_t* above, const std::uint8_t* middle, const std::uint8_t* below,
              std::size_t values, std::uint16_t* __restrict sums) {
#pragma omp simd
  for (std::size_t i = 0; i < values; ++i)
    sums[i] = static_cast<std::uint16_t>(above[i] + middle[i] + below[i]);
}

// One row: the sum of 3 x 3 pixels, the middle one five times, over 13, rounded; then blended.
void sharpen_row(const std::uint8_t* middle, const std::uint16_t* __restrict sums, float factor,
                 std::size_t values, std::uint8_t* __restrict out) {
  const std::size_t end = values - Image::channels;
#pragma omp simd
  for (std::size_t i = Image::channels; i < end; ++i) {
    const auto sum = static_cast<std::uint16_t>(sums[i - Image::channels] + sums[i] +
                                                sums[i + Image::channels] + 4 * middle[i]);
    const auto smooth = static_cast<std::uint16_t>(static_cast<std::uint16_t>(2 * sum + 13) / 26);
    out[i] = blend(smooth, middle[i], factor);
  }
}

}  // namespace

std::string_view name_of(PixelOperation::Kind kind) {
  constexpr std::array<std::string_view, PixelOperation::kinds> names{
      "Identity",    "ShearX",       "ShearY",   "TranslateX", "TranslateY", "Rotate",
      "Brightness",  "Color",        "Contrast", "Sharpness",  "Posterize",  "Solarize",
      "SolarizeAdd", "AutoContrast", "Equalize", "Invert"};
  return names[static_cast<std::size_t>(kind)];
}

ImageView PixelOperator::copy_of(const PixelSpan& image) {
  copy_.assign(image.rgb.begin(), image.rgb.end());
  return {image.extent, copy_};
}

void PixelOperator::transform_by(const AffineMap& map, const Resampling& resampling,
                                 const PixelSpan& image) {
  transform(copy_of(image), map, resampling.interpolation, resampling.outside, image.rgb.data());
}

// The border stays, as in Pillow's SMOOTH.
void PixelOperator::sharpen(float factor, const PixelSpan& image) {
  const std::uint8_t* from = copy_of(image).pixels.data();
  const std::size_t values = std::size_t(image.extent.width) * Image::channels;
  sums_.resize(values);
  for (int row = 1; row + 1 < image.extent.height; ++row) {
    const std::uint8_t *middle = from + row * values, *above = middle - values,
                       *below = middle + values;
    add_rows(above, middle, below, values, sums_.data());
    sharpen_row(middle, sums_.data(), factor, values, image.rgb.data() + row * values);
  }
}

void PixelOperator::run(const PixelOperation& operation, const Resampling& resampling,
                        const PixelSpan& image) {
  using enum PixelOperation::Kind;
  const double m = operation.magnitude;
  const float factor = static_cast<float>(m);
  const int whole = static_cast<int>(m);
  switch (operation.kind) {
    case identity:
      return;
    case shear_x:
      return transform_by({.b = m}, resampling, image);
    case shear_y:
      return transform_by({.d = m}, resampling, image);
    case translate_x:
      return transform_by({.c = -m}, resampling, image);
    case translate_y:
      return transform_by({.f = -m}, resampling, image);
    case rotate:
      return transform_by(rotation(m, image.extent), resampling, image);
    case brightness:
      return for_each_value(image, [=](std::uint8_t v) { return blend(0, v, factor); });
    case color:
      return saturate(factor, image);
    case contrast:
      return for_each_value(
          image, [=, mean = mean_grey(image)](std::uint8_t v) { return blend(mean, v, factor); });
    case sharpness:
      return sharpen(factor, image);
    case posterize:
      return for_each_value(image, [mask = static_cast<std::uint8_t>(0xFF00 >> whole)](
                                       std::uint8_t v) { return std::uint8_t(v & mask); });
    case solarize:
      return for_each_value(image, [least = static_cast<int>(std::ceil(m))](std::uint8_t v) {
        return static_cast<std::uint8_t>(v < least ? v : 255 - v);
      });
    case solarize_add:
      return for_each_value(image, [whole](std::uint8_t v) {
        return static_cast<std::uint8_t>(v < 128 ? std::min(v + whole, 255) : v);
      });
    case auto_contrast:
      return change_levels(image, stretch);
    case equalize:
      return change_levels(image, flatten);
    case invert:
      return for_each_value(image, [](std::uint8_t v) { return std::uint8_t(255 - v); });
  }
}

}  // namespace ringtrain::io
