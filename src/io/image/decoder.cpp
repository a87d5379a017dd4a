#include "io/image/decoder.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>

namespace ringtrain::io {

namespace {

constexpr std::array<std::uint8_t, 3> jpeg_start{0xFF, 0xD8, 0xFF};
constexpr std::array<std::uint8_t, 8> png_start{0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};

bool begins_with(std::span<const std::uint8_t> bytes, std::span<const std::uint8_t> start) {
  return bytes.size() >= start.size() && std::ranges::equal(bytes.first(start.size()), start);
}

/// Of other formats that files named .jpg turn out to have: a mark at the start, one behind it.
struct OtherFormat {
  std::string_view start;
  std::size_t offset;
  std::string_view mark, name;
};
constexpr std::array other_formats{
    OtherFormat{"GIF8", 0, "", "a GIF"},
    OtherFormat{"RIFF", 8, "WEBP", "a WebP"},
    OtherFormat{"BM", 6, {"\0\0\0\0", 4}, "a BMP"},
    OtherFormat{{"II*\0", 4}, 0, "", "a TIFF"},
    OtherFormat{{"MM\0*", 4}, 0, "", "a TIFF"},
    OtherFormat{"", 4, "ftyphei", "an HEIC"},
    OtherFormat{"", 4, "ftyphev", "an HEIC"},
    OtherFormat{"", 4, "ftypmif1", "an HEIC"},
    OtherFormat{"", 4, "ftypavi", "an AVIF"},
};

bool is(const OtherFormat& format, std::string_view text) {
  return text.starts_with(format.start) && text.size() > format.offset &&
         text.substr(format.offset).starts_with(format.mark);
}

std::string first_bytes(std::span<const std::uint8_t> bytes) {
  std::string text;
  for (const auto byte : bytes.first(std::min<std::size_t>(4, bytes.size())))
    text += fmt::format(" {:02x}", byte);
  return text;
}

std::string what_else(std::span<const std::uint8_t> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto* const found = std::ranges::find_if(
      other_formats, [&](const OtherFormat& format) { return is(format, text); });
  if (found != other_formats.end())
    return fmt::format("{} image; train reads JPEG and PNG, so convert it", found->name);
  return "neither JPEG nor PNG, begins with" + first_bytes(bytes);
}

class ImageDecoder final : public Decoder {
 public:
  explicit ImageDecoder(std::uint64_t max_pixels)
      : jpeg_(make_jpeg_decoder(max_pixels)), png_(make_png_decoder(max_pixels)) {}

  Extent open(std::span<const std::uint8_t> bytes) override {
    current_ = &of_format(bytes);
    return current_->open(bytes);
  }
  PixelView pixels(const CropRequest& need, Image& image) override {
    return current_->pixels(need, image);
  }

 private:
  Decoder& of_format(std::span<const std::uint8_t> bytes) {
    if (begins_with(bytes, jpeg_start)) return *jpeg_;
    if (begins_with(bytes, png_start)) return *png_;
    throw Undecodable(what_else(bytes));
  }

  std::unique_ptr<Decoder> jpeg_, png_;
  Decoder* current_ = nullptr;
};

}  // namespace

std::unique_ptr<Decoder> make_image_decoder(std::uint64_t max_pixels) {
  return std::make_unique<ImageDecoder>(max_pixels);
}

bool begins_as_image(std::span<const std::uint8_t> bytes) {
  return begins_with(bytes, jpeg_start) || begins_with(bytes, png_start);
}

void check_extent(std::uint64_t height, std::uint64_t width, std::uint64_t max_pixels) {
  if (height > 0 && width > 0 && height <= max_pixels / width) return;
  throw Undecodable(fmt::format("{} x {} pixels; 1 to {} are allowed", width, height, max_pixels));
}

void check_bytes(Extent image, std::uint64_t needed, std::uint64_t bytes) {
  if (needed <= bytes) return;
  throw Undecodable(fmt::format("{} x {} pixels cannot be in {} bytes: it is cut short",
                                image.width, image.height, bytes));
}

}  // namespace ringtrain::io
