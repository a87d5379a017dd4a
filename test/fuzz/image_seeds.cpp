// Writes images of every kind that the tests can encode, for a fuzzer to start from.
// Usage: image_seeds DIR
#include <fmt/core.h>

#include "unit/io/dataset/data_support.hpp"

using namespace ringtrain;
using namespace ringtrain::test;

int main(int argc, char** argv) {
  if (argc != 2) return fmt::print("usage: {} DIR\n", argv[0]), 2;
  const std::filesystem::path home = argv[1];
  for (const io::Extent extent : {io::Extent{9, 10}, io::Extent{37, 53}}) {
    const io::Image image = gradient_image(extent);
    int number = extent.height * 100;
    for (const auto kind : all_jpeg_kinds)
      write_file(home / fmt::format("{}.jpg", ++number), encode_jpeg(image, kind, 75));
    for (const auto kind : all_png_kinds)
      write_file(home / fmt::format("{}.png", ++number), encode_png(image, kind));
  }
}
