#include "bench/bare_jpeg.hpp"

#include <cstdio>
// jpeglib.h needs size_t and FILE declared before it.
#include <jpeglib.h>

namespace {

/// The library's own handling of errors ends the program.
struct Library {
  Library() {
    info.err = jpeg_std_error(&errors);
    jpeg_create_decompress(&info);
  }
  ~Library() { jpeg_destroy_decompress(&info); }

  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  std::vector<std::uint8_t> pixels;
};

}  // namespace

std::uint64_t bare_decode(const std::vector<std::uint8_t>& bytes) {
  static Library library;
  jpeg_decompress_struct& info = library.info;
  jpeg_mem_src(&info, bytes.data(), bytes.size());
  jpeg_read_header(&info, TRUE);
  info.out_color_space = JCS_RGB;
  jpeg_start_decompress(&info);
  const std::size_t row = std::size_t(info.output_width) * info.output_components;
  if (library.pixels.size() < info.output_height * row)
    library.pixels.resize(info.output_height * row);
  while (info.output_scanline < info.output_height) {
    JSAMPROW at = &library.pixels[info.output_scanline * row];
    jpeg_read_scanlines(&info, &at, 1);
  }
  jpeg_finish_decompress(&info);
  return std::uint64_t(info.output_height) * info.output_width;
}
