#include "io/image/crop.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

namespace ringtrain::io {
namespace {

/// Rows and columns of the output that show the scaled image; the others are black.
ScaledWindow shown_part(const CropTransform& crop, Extent output) {
  const int top = std::max(crop.top, 0), left = std::max(crop.left, 0);
  const int bottom = std::min(crop.top + output.height, crop.scaled.height);
  const int right = std::min(crop.left + output.width, crop.scaled.width);
  return {top, left, {std::max(bottom - top, 0), std::max(right - left, 0)}};
}

/// One axis of a crop: [start, start + length) of the image is scaled to `scaled`.
struct Side {
  double start, length;
  int scaled;
  double reach;  // of the filter
};

/// The first of the image's `size` pixels that outputs [begin, begin + count) are made of, with one
/// to spare, and how many there are.
std::pair<int, int> reach(const Side& side, int begin, int count, int size) {
  const double scale = side.length / side.scaled, around = std::max(scale, 1.0) * side.reach + 1;
  const double first = side.start + begin * scale - around;
  const double end = side.start + (begin + count) * scale + around;
  const int from = std::clamp(static_cast<int>(std::floor(first)), 0, size - 1);
  return {from, std::clamp(static_cast<int>(std::ceil(end)), from + 1, size) - from};
}

bool is_whole(double value) { return value == std::floor(value); }

bool is_plain_copy(const CropTransform& crop, const Box& box) {
  return box.width == crop.scaled.width && box.height == crop.scaled.height && is_whole(box.left) &&
         is_whole(box.top);
}

void copy_row(const std::uint8_t* in, int width, bool mirrored, std::uint8_t* out) {
  if (!mirrored) {
    std::memcpy(out, in, std::size_t(width) * Image::channels);
    return;
  }
  for (int x = width - 1; x >= 0; --x)
    for (int c = 0; c < Image::channels; ++c) *out++ = in[x * Image::channels + c];
}

void copy_rows(const ImageView& image, const CropTransform& crop, const Box& box,
               const ScaledWindow& part, std::uint8_t* out, std::size_t stride) {
  const std::size_t left = static_cast<std::size_t>(box.left) + part.left;
  for (int y = 0; y < part.extent.height; ++y) {
    const std::size_t row = static_cast<std::size_t>(box.top) + part.top + y;
    copy_row(&image.pixels[(row * image.extent.width + left) * Image::channels], part.extent.width,
             crop.mirrored, out + y * stride);
  }
}

// Fills places outside [first, first + count) of `length` with those that lie mirrored at its ends;
// `copy` is called with the place and where it comes from.
template <class Copy>
void reflect(int first, int count, int length, const Copy& copy) {
  const int last = first + count - 1;
  for (int at = first - 1; at >= 0; --at) copy(at, std::min(2 * first - at, last));
  for (int at = last + 1; at < length; ++at) copy(at, std::max(2 * last - at, first));
}

void reflect(ScaledWindow shown, Extent output, std::uint8_t* out) {
  const std::size_t stride = std::size_t(output.width) * Image::channels;
  for (int y = shown.top; y < shown.top + shown.extent.height; ++y)
    reflect(shown.left, shown.extent.width, output.width, [&](int to, int from) {
      std::uint8_t* const row = out + y * stride;
      std::memcpy(row + to * Image::channels, row + from * Image::channels, Image::channels);
    });
  reflect(shown.top, shown.extent.height, output.height,
          [&](int to, int from) { std::memcpy(out + to * stride, out + from * stride, stride); });
}

}  // namespace

CropRequest request_for(const CropTransform& crop, Extent full, Extent output) {
  const ScaledWindow part = shown_part(crop, output);
  const double wide = reach_of(crop.interpolation);
  const auto [top, height] = reach({crop.box.top, crop.box.height, crop.scaled.height, wide},
                                   part.top, part.extent.height, full.height);
  const auto [left, width] = reach({crop.box.left, crop.box.width, crop.scaled.width, wide},
                                   part.left, part.extent.width, full.width);
  const double scale =
      std::min(crop.box.height / crop.scaled.height, crop.box.width / crop.scaled.width);
  return {top, left, {height, width}, std::max(1, static_cast<int>(scale / 2))};
}

void Renderer::run(const PixelView& portion, const CropTransform& crop, Extent output,
                   std::uint8_t* out) {
  const ImageView& image = portion.pixels;
  const double by = portion.reduction;
  const Box box{crop.box.left / by - portion.left, crop.box.top / by - portion.top,
                crop.box.width / by, crop.box.height / by};
  const ScaledWindow part = shown_part(crop, output);
  const std::size_t stride = std::size_t(output.width) * Image::channels;
  if (part.extent != output) std::memset(out, 0, output.height * stride);

  const int left_edge = part.left - crop.left;
  const int column = crop.mirrored ? output.width - left_edge - part.extent.width : left_edge;
  std::uint8_t* first = out + (part.top - crop.top) * stride + column * Image::channels;
  if (is_plain_copy(crop, box))
    copy_rows(image, crop, box, part, first, stride);
  else
    resizer_.run(image, box, crop.scaled, part, crop.mirrored, first, stride, crop.interpolation);
  if (crop.reflected && part.extent != output && part.extent.pixels() > 0)
    reflect({part.top - crop.top, column, part.extent}, output, out);
}

}  // namespace ringtrain::io
