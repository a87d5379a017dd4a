// What TrivialAugmentWide costs: policy_bench IMAGE.ppm [SECONDS] augments copies of the image, one
// after the other, and prints images a CPU second. test/bench/policies.py runs it in turn with
// Pillow.
#include <fmt/core.h>

#include <cstdlib>
#include <ctime>
#include <fstream>

#include "io/image/augment/policies.hpp"

using namespace ringtrain;

namespace {

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

/// Of 8 bits, without comments.
io::Image read_ppm(const char* path) {
  std::ifstream file(path, std::ios::binary);
  std::string magic;
  io::Extent extent;
  int most = 0;
  file >> magic >> extent.width >> extent.height >> most;
  file.get();
  io::Image image;
  image.reshape(extent);
  file.read(reinterpret_cast<char*>(image.pixels.data()), std::ssize(image.pixels));
  return file && magic == "P6" ? image : io::Image{};
}

}  // namespace

int main(int argc, char** argv) {
  const io::Image image = argc > 1 ? read_ppm(argv[1]) : io::Image{};
  if (image.pixels.empty()) return fmt::print("usage: {} IMAGE.ppm [SECONDS]\n", argv[0]), 2;
  const double enough_s = argc > 2 ? std::atof(argv[2]) : 1;
  io::PixelOperator pixel_operator;
  io::Image copy = image;
  std::uint64_t images = 0;
  const double start = cpu_seconds();
  for (; cpu_seconds() - start < enough_s; ++images) {
    copy.pixels = image.pixels;
    Philox random(1, Purpose::augment, 0, images);
    for (const auto& each : io::draw_operations(io::TrivialAugmentWide{}, copy.extent, random))
      pixel_operator.run(each, {}, {copy.extent, copy.pixels});
  }
  fmt::print("{:.1f}\n", static_cast<double>(images) / (cpu_seconds() - start));
}
