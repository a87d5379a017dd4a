// render_image: reads lines of LEFT TOP WIDTH HEIGHT SIDE MIRRORED FILE; for each it writes what
// the loader makes of that part of the image: SIDE x SIDE pixels, three bytes each.
#include <cstdio>
#include <exception>
#include <iostream>
#include <string>

#include "io/files/file_bytes.hpp"
#include "io/image/crop.hpp"
#include "io/image/decoder.hpp"

using namespace ringtrain;

namespace {

std::vector<std::uint8_t> rendered(const std::string& file, const io::CropTransform& crop,
                                   io::Extent output) {
  std::vector<std::uint8_t> bytes, result(output.pixels() * io::Image::channels);
  io::read_file(file, bytes);
  const auto decoder = io::make_image_decoder(std::uint64_t{1} << 26);
  const io::Extent full = decoder->open(bytes);
  io::Image image;
  io::Renderer().run(decoder->pixels(io::request_for(crop, full, output), image), crop, output,
                     result.data());
  return result;
}

}  // namespace

int main() {
  try {
    io::Box box;
    int side = 0;
    bool mirrored = false;
    std::string file;
    while (std::cin >> box.left >> box.top >> box.width >> box.height >> side >> mirrored &&
           std::getline(std::cin >> std::ws, file)) {
      const auto result = rendered(file, {box, {side, side}, 0, 0, mirrored}, {side, side});
      std::fwrite(result.data(), 1, result.size(), stdout);
    }
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "%s\n", failure.what());
    return 1;
  }
}
