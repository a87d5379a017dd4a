#pragma once
#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "io/image/decoder.hpp"

namespace ringtrain::io {

/// All pixels of an image file.
inline Image decoded_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> text{std::istreambuf_iterator<char>(file), {}};
  const std::vector<std::uint8_t> bytes(text.begin(), text.end());
  const auto decoder = make_image_decoder(1 << 20);
  Image memory;
  const Extent extent = decoder->open(bytes);
  const ImageView view = decoder->pixels({.extent = extent}, memory).pixels;
  return {view.extent, {view.pixels.begin(), view.pixels.end()}};
}

}  // namespace ringtrain::io
