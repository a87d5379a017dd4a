#include "io/image/augment/pixel_operations.hpp"

#include <zlib.h>

#include <array>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "support/catch.hpp"
#include "support/decoded_file.hpp"

using namespace ringtrain;
using namespace ringtrain::io;

namespace {

const std::string golden_home = RINGTRAIN_SOURCE_DIR "/test/data/";

Image photograph(const std::string& name) {
  return decoded_file(golden_home + "photographs/train/" + name);
}

/// What Pillow made of both photographs; see test/data/pixel_operations/make.py.
struct Golden {
  PixelOperation operation;
  std::string name, interpolation;
  std::array<std::uint32_t, 2> sums;
};

PixelOperation::Kind kind_of(const std::string& name) {
  for (int k = 0; k < PixelOperation::kinds; ++k)
    if (name_of(PixelOperation::Kind(k)) == name) return PixelOperation::Kind(k);
  FAIL("no operation " + name);
  return {};
}

std::vector<Golden> goldens() {
  std::ifstream file(golden_home + "pixel_operations/pillow.txt");
  std::vector<Golden> all;
  for (Golden one; file >> one.name >> one.operation.magnitude >> one.interpolation >>
                   one.sums[0] >> one.sums[1];) {
    one.operation.kind = kind_of(one.name);
    all.push_back(one);
  }
  return all;
}

Resampling resampling_of(const std::string& interpolation) {
  if (interpolation == "bicubic") return {Interpolation::bicubic, {124, 116, 104}};
  return {};
}

Image changed(Image image, const PixelOperation& operation, const Resampling& resampling = {}) {
  PixelOperator().run(operation, resampling, {image.extent, image.pixels});
  return image;
}

std::uint32_t sum_of(const Image& image) {
  return static_cast<std::uint32_t>(
      crc32(0, image.pixels.data(), static_cast<unsigned>(image.pixels.size())));
}

}  // namespace

TEST_CASE("pixel operations: photographs are Pillow's to the bit, at every magnitude") {
  const std::array images{photograph("living/cat.png"), photograph("objects/cup.png")};
  PixelOperator keeps_memory;
  std::map<std::string, int> wrong;
  std::set<std::string> names;

  for (const Golden& golden : goldens())
    for (int i = 0; i < 2; ++i) {
      Image image = images[i];
      keeps_memory.run(golden.operation, resampling_of(golden.interpolation),
                       {image.extent, image.pixels});
      names.insert(golden.name);
      if (sum_of(image) == golden.sums[i]) continue;
      ++wrong[golden.name + " " + golden.interpolation];
      CAPTURE(golden.name, golden.operation.magnitude, golden.interpolation, i);
      CHECK(sum_of(image) == golden.sums[i]);
    }

  CHECK(wrong == std::map<std::string, int>{});
  CHECK(names.size() == PixelOperation::kinds);
}

TEST_CASE("pixel operations: images of one colour, and of one pixel, pass through all of them") {
  const Extent extent = GENERATE(Extent{1, 1}, Extent{1, 5}, Extent{5, 1}, Extent{2, 2});
  const auto kind = GENERATE(range(0, PixelOperation::kinds));
  const Image image{extent, std::vector<std::uint8_t>(extent.pixels() * 3, 60)};
  CAPTURE(extent.height, extent.width, kind);
  using enum PixelOperation::Kind;

  const Image result = changed(image, {PixelOperation::Kind(kind), 1}, {.outside = {60, 60, 60}});

  const std::map<PixelOperation::Kind, int> others{
      {posterize, 0}, {solarize, 195}, {solarize_add, 61}, {invert, 195}};
  const auto found = others.find(PixelOperation::Kind(kind));
  const int expected = found == others.end() ? 60 : found->second;
  CHECK(result.pixels == std::vector<std::uint8_t>(image.pixels.size(), std::uint8_t(expected)));
}
