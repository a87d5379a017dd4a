#include <png.h>

#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>

#include "io/image/decoder.hpp"

namespace ringtrain::io {
namespace {

// Deflate makes at most 1032 bytes of one. What is small costs little memory, however it is coded.
constexpr std::uint64_t densest_bytes = 1032, small_png = 1 << 16;

/// What libpng's callbacks see. They may not return, so they leave to `target`.
struct Source {
  std::span<const std::uint8_t> rest;
  std::jmp_buf target;
  std::array<char, 200> message;
};

[[noreturn]] void leave(png_structp png, png_const_charp message) {
  auto* source = static_cast<Source*>(png_get_error_ptr(png));
  std::snprintf(source->message.data(), source->message.size(), "%s (PNG)", message);
  std::longjmp(source->target, 1);
}

// Oddities in colour profiles and the like; damage to pixels is an error of its own.
void on_warning(png_structp, png_const_charp) {}

void on_read(png_structp png, png_bytep bytes, std::size_t count) {
  auto* source = static_cast<Source*>(png_get_io_ptr(png));
  if (count > source->rest.size()) png_error(png, "the file ends too early");
  std::memcpy(bytes, source->rest.data(), count);
  source->rest = source->rest.subspan(count);
}

/// libpng's pair of structs, which live for one image.
struct Png {
  explicit Png(Source& source)
      : read(png_create_read_struct(PNG_LIBPNG_VER_STRING, &source, leave, on_warning)),
        info(read ? png_create_info_struct(read) : nullptr) {}
  ~Png() { png_destroy_read_struct(&read, &info, nullptr); }
  Png(const Png&) = delete;
  Png& operator=(const Png&) = delete;

  png_structp read;
  png_infop info;
};

class PngDecoder final : public Decoder {
 public:
  explicit PngDecoder(std::uint64_t max_pixels) : max_pixels_(max_pixels) {}
  Extent open(std::span<const std::uint8_t> bytes) override;
  PixelView pixels(const CropRequest& need, Image& memory) override;

 private:
  template <class Calls>
  void guarded(Calls calls);
  Extent extent() const;
  void decode(std::uint8_t* into, std::size_t row);
  PixelView split(Image& image);

  const std::uint64_t max_pixels_;
  Source source_{};
  std::unique_ptr<Png> png_;
  std::vector<png_bytep> rows_;
  std::vector<std::uint8_t> mixed_;  // colours and opacity
  Image alpha_;
};

// libpng leaves by longjmp: `calls` may own nothing and nothing here changes after setjmp.
template <class Calls>
void PngDecoder::guarded(Calls calls) {
  if (setjmp(source_.target) != 0) throw Undecodable(source_.message.data());
  calls();
}

Extent PngDecoder::extent() const {
  return {static_cast<int>(png_get_image_height(png_->read, png_->info)),
          static_cast<int>(png_get_image_width(png_->read, png_->info))};
}

Extent PngDecoder::open(std::span<const std::uint8_t> bytes) {
  source_.rest = bytes;
  png_ = std::make_unique<Png>(source_);
  if (!png_->info) throw std::bad_alloc();
  guarded([&] {
    png_set_read_fn(png_->read, &source_, on_read);
    png_read_info(png_->read, png_->info);
  });
  const Extent full = extent();
  check_extent(full.height, full.width, max_pixels_);
  const std::uint64_t filtered =  // a byte more a row
      std::uint64_t(full.height) * (1 + png_get_rowbytes(png_->read, png_->info));
  if (filtered > small_png) check_bytes(full, filtered / densest_bytes, bytes.size());
  return full;
}

// PNG has no ends to begin or stop at but the first and the last. What follows the pixels, whose
// checksums are verified with the last row, is not read: it may be missing.
PixelView PngDecoder::pixels(const CropRequest& need, Image& image) {
  guarded([&] {
    png_set_expand(png_->read);  // palettes, fewer than 8 bits and transparent colours
    png_set_scale_16(png_->read);
    png_set_gray_to_rgb(png_->read);
    if (!need.alpha) png_set_strip_alpha(png_->read);
    png_set_interlace_handling(png_->read);
    png_read_update_info(png_->read, png_->info);
  });
  image.reshape(extent());
  const auto width = static_cast<std::size_t>(image.extent.width);
  const std::size_t row = png_get_rowbytes(png_->read, png_->info);
  if (need.alpha && row == width * (Image::channels + 1)) return split(image);
  if (row != width * Image::channels) throw Undecodable("unknown layout (PNG)");
  decode(image.pixels.data(), row);
  return {image.view()};
}

void PngDecoder::decode(std::uint8_t* into, std::size_t row) {
  rows_.resize(extent().height);
  for (std::size_t y = 0; y < rows_.size(); ++y) rows_[y] = into + y * row;
  guarded([&] { png_read_image(png_->read, rows_.data()); });
}

PixelView PngDecoder::split(Image& image) {
  constexpr std::size_t channels = Image::channels;
  const std::size_t pixels = image.extent.pixels();
  mixed_.resize(pixels * (channels + 1));
  decode(mixed_.data(), mixed_.size() / image.extent.height);
  alpha_.reshape(image.extent);
  for (std::size_t i = 0; i < pixels; ++i) {
    const std::uint8_t* from = &mixed_[i * (channels + 1)];
    std::memcpy(&image.pixels[i * channels], from, channels);
    std::memset(&alpha_.pixels[i * channels], from[channels], channels);
  }
  return {.pixels = image.view(), .alpha = alpha_.view()};
}

}  // namespace

std::unique_ptr<Decoder> make_png_decoder(std::uint64_t max_pixels) {
  return std::make_unique<PngDecoder>(max_pixels);
}

}  // namespace ringtrain::io
