#include <cstdio>
// jpeglib.h needs size_t and FILE declared before it.
#include <jpeglib.h>

#include <algorithm>
#include <cstdlib>

#include "unit/io/dataset/data_support.hpp"

namespace ringtrain::test {
namespace {

int components(JpegKind kind) {
  if (kind == JpegKind::grey) return 1;
  return kind == JpegKind::cmyk || kind == JpegKind::ycck ? 4 : 3;
}

J_COLOR_SPACE colour_space(JpegKind kind) {
  if (kind == JpegKind::grey) return JCS_GRAYSCALE;
  return components(kind) == 4 ? JCS_CMYK : JCS_RGB;
}

/// One pixel as the encoder wants it: grey is red, ink is inverted, black is none.
void append_components(JpegKind kind, const std::uint8_t* rgb, Bytes& row) {
  row.insert(row.end(), rgb, rgb + std::min(components(kind), 3));
  if (components(kind) == 4) row.push_back(255);
}

/// All averages, then every coefficient of every component in a scan of its own: 190 in all.
std::vector<jpeg_scan_info> many_scans() {
  std::vector<jpeg_scan_info> scans{{3, {0, 1, 2, 0}, 0, 0, 0, 0}};
  for (int component = 0; component < 3; ++component)
    for (int coefficient = 1; coefficient < 64; ++coefficient)
      scans.push_back({1, {component, 0, 0, 0}, coefficient, coefficient, 0, 0});
  return scans;
}

/// Averages and five coefficients of each component, without their last bits.
std::vector<jpeg_scan_info> coarse_scans() {
  std::vector<jpeg_scan_info> scans{{3, {0, 1, 2, 0}, 0, 0, 0, 1}};
  for (int component = 0; component < 3; ++component)
    scans.push_back({1, {component, 0, 0, 0}, 1, 5, 0, 2});
  return scans;
}

}  // namespace

Bytes encode_jpeg(const io::Image& image, JpegKind kind, int quality,
                  std::span<const Sampling> factors) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &memory, &size);

  info.image_height = static_cast<JDIMENSION>(image.extent.height);
  info.image_width = static_cast<JDIMENSION>(image.extent.width);
  info.input_components = components(kind);
  info.in_color_space = colour_space(kind);
  jpeg_set_defaults(&info);
  if (kind == JpegKind::ycck) jpeg_set_colorspace(&info, JCS_YCCK);
  jpeg_set_quality(&info, quality, TRUE);
  if (kind == JpegKind::progressive) jpeg_simple_progression(&info);
  info.arith_code = kind == JpegKind::arithmetic;
  for (std::size_t i = 0; i < factors.size(); ++i) {
    info.comp_info[i].h_samp_factor = factors[i].across;
    info.comp_info[i].v_samp_factor = factors[i].down;
  }
  const auto scans = kind == JpegKind::coarse ? coarse_scans() : many_scans();
  if (kind == JpegKind::coarse || kind == JpegKind::many_scans) {
    info.scan_info = scans.data();
    info.num_scans = static_cast<int>(scans.size());
  }
  info.write_Adobe_marker = components(kind) == 4;

  jpeg_start_compress(&info, TRUE);
  for (int y = 0; y < image.extent.height; ++y) {
    Bytes row;
    for (int x = 0; x < image.extent.width; ++x)
      append_components(
          kind, &image.pixels[(std::size_t(y) * image.extent.width + x) * io::Image::channels],
          row);
    JSAMPROW rows = row.data();
    jpeg_write_scanlines(&info, &rows, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  Bytes bytes(memory, memory + size);
  std::free(memory);
  return bytes;
}

}  // namespace ringtrain::test
