#include "io/image/downscale.hpp"

#include <algorithm>
#include <cmath>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
// jpeglib.h needs size_t and FILE declared before it.
#include <jpeglib.h>

namespace ringtrain::io {
namespace {

constexpr int quality = 95;

/// Where libjpeg, which may not return, leaves to. `errors` comes first: libjpeg knows its address.
struct EncoderEscape {
  jpeg_error_mgr errors;
  std::jmp_buf target;
};

[[noreturn]] void leave_encoder(j_common_ptr info) {
  std::longjmp(reinterpret_cast<EncoderEscape*>(info->err)->target, 1);
}

struct Encoder {
  Encoder() = default;
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;
  ~Encoder() {
    jpeg_destroy_compress(&info);
    std::free(memory);
  }

  // libjpeg leaves by longjmp: nothing here is changed after setjmp and read behind it.
  bool run(const ImageView& image, int with_quality) {
    info.err = jpeg_std_error(&escape.errors);
    escape.errors.error_exit = leave_encoder;
    if (setjmp(escape.target) != 0) return false;
    jpeg_create_compress(&info);
    jpeg_mem_dest(&info, &memory, &size);
    info.image_height = static_cast<JDIMENSION>(image.extent.height);
    info.image_width = static_cast<JDIMENSION>(image.extent.width);
    info.input_components = Image::channels;
    info.in_color_space = JCS_RGB;
    jpeg_set_defaults(&info);
    jpeg_set_quality(&info, with_quality, TRUE);
    jpeg_start_compress(&info, TRUE);
    while (info.next_scanline < info.image_height) {
      auto* row = const_cast<std::uint8_t*>(image.pixels.data()) +
                  std::size_t{info.next_scanline} * info.image_width * Image::channels;
      jpeg_write_scanlines(&info, &row, 1);
    }
    jpeg_finish_compress(&info);
    return true;
  }

  jpeg_compress_struct info{};
  EncoderEscape escape{};
  unsigned char* memory = nullptr;
  unsigned long size = 0;
};

}  // namespace

void encode_jpeg(const ImageView& image, int with_quality, std::vector<std::uint8_t>& bytes) {
  Encoder encoder;
  if (!encoder.run(image, with_quality)) throw Undecodable("libjpeg cannot encode it");
  bytes.assign(encoder.memory, encoder.memory + encoder.size);
}

std::span<const std::uint8_t> Downscaler::run(std::span<const std::uint8_t> image) {
  const Extent full = decoder_->open(image);
  const int shorter = std::min(full.height, full.width);
  if (shorter <= short_side_) return image;
  const ImageView pixels = decoder_->pixels({.extent = full}, full_).pixels;
  const auto scaled = [&](int side) {
    return static_cast<int>(std::lround(static_cast<double>(side) * short_side_ / shorter));
  };
  small_.reshape({scaled(full.height), scaled(full.width)});
  const Box box{0, 0, static_cast<double>(full.width), static_cast<double>(full.height)};
  resizer_.run(pixels, box, small_.extent, {0, 0, small_.extent}, false, small_.pixels.data(),
               std::size_t(small_.extent.width) * Image::channels);
  encode_jpeg(small_.view(), quality, encoded_);
  return encoded_;
}

}  // namespace ringtrain::io
