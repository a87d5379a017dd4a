#include <png.h>

#include "unit/io/dataset/data_support.hpp"

namespace ringtrain::test {
namespace {

struct Format {
  int colour, depth, interlace = PNG_INTERLACE_NONE;
};

Format format_of(PngKind kind) {
  switch (kind) {
    case PngKind::grey:
      return {PNG_COLOR_TYPE_GRAY, 8};
    case PngKind::grey_16:
      return {PNG_COLOR_TYPE_GRAY, 16};
    case PngKind::rgb_16:
      return {PNG_COLOR_TYPE_RGB, 16};
    case PngKind::rgb_alpha:
      return {PNG_COLOR_TYPE_RGB_ALPHA, 8};
    case PngKind::palette:
      return {PNG_COLOR_TYPE_PALETTE, 8};
    case PngKind::grey_1:
      return {PNG_COLOR_TYPE_GRAY, 1};
    case PngKind::interlaced:
      return {PNG_COLOR_TYPE_RGB, 8, PNG_INTERLACE_ADAM7};
    case PngKind::rgb:
      break;
  }
  return {PNG_COLOR_TYPE_RGB, 8};
}

/// The bytes of one pixel. A palette entry is a value's red; 16 bits repeat the 8, which is exact.
void append_samples(PngKind kind, const std::uint8_t* rgb, Bytes& row) {
  const bool grey = kind == PngKind::grey || kind == PngKind::grey_16 || kind == PngKind::palette;
  for (int c = 0; c < (grey ? 1 : io::Image::channels); ++c) {
    row.push_back(rgb[c]);
    if (format_of(kind).depth == 16) row.push_back(rgb[c]);
  }
  if (kind == PngKind::rgb_alpha) row.push_back(static_cast<std::uint8_t>(rgb[0] / 2));
}

Bytes packed_bits(const io::Image& image, int y) {
  Bytes row((image.extent.width + 7) / 8);
  for (int x = 0; x < image.extent.width; ++x)
    if (image.pixels[(std::size_t(y) * image.extent.width + x) * io::Image::channels] >= 128)
      row[x / 8] = static_cast<std::uint8_t>(row[x / 8] | 0x80 >> x % 8);
  return row;
}

void append_bytes(png_structp png, png_bytep bytes, std::size_t count) {
  auto* out = static_cast<Bytes*>(png_get_io_ptr(png));
  out->insert(out->end(), bytes, bytes + count);
}

}  // namespace

Bytes encode_png(const io::Image& image, PngKind kind) {
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  Bytes bytes;
  png_set_write_fn(png, &bytes, append_bytes, [](png_structp) {});

  const Format format = format_of(kind);
  png_set_IHDR(png, info, static_cast<png_uint_32>(image.extent.width),
               static_cast<png_uint_32>(image.extent.height), format.depth, format.colour,
               format.interlace, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  std::vector<png_color> palette(256);
  for (std::size_t i = 0; i < palette.size(); ++i) {
    const auto value = static_cast<std::uint8_t>(i);
    palette[i] = {value, static_cast<std::uint8_t>(255 - value), 7};
  }
  if (kind == PngKind::palette) png_set_PLTE(png, info, palette.data(), 256);
  png_write_info(png, info);

  std::vector<Bytes> rows(image.extent.height);
  std::vector<png_bytep> pointers;
  for (int y = 0; y < image.extent.height; ++y) {
    for (int x = 0; x < image.extent.width; ++x)
      append_samples(kind,
                     &image.pixels[(std::size_t(y) * image.extent.width + x) * io::Image::channels],
                     rows[y]);
    if (kind == PngKind::grey_1) rows[y] = packed_bits(image, y);
    pointers.push_back(rows[y].data());
  }
  png_write_image(png, pointers.data());
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return bytes;
}

}  // namespace ringtrain::test
