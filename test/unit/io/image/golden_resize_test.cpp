#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "io/image/augmented_image.hpp"
#include "io/image/decoder.hpp"
#include "support/catch.hpp"
#include "support/decoded_file.hpp"

using namespace ringtrain;
using namespace ringtrain::io;

namespace {

const std::string data = RINGTRAIN_SOURCE_DIR "/test/data/";

/// As evaluation sees it.
Image evaluated(const Image& image, const Augmentation& recipe) {
  Image seen;
  seen.reshape(recipe.output);
  const CropTransform crop = AugmentedImage(recipe, image.extent).crop();
  Renderer().run({image.view()}, crop, recipe.output, seen.pixels.data());
  return seen;
}

int largest_difference(const Image& a, const Image& b) {
  REQUIRE(a.extent == b.extent);
  int largest = 0;
  for (std::size_t i = 0; i < a.pixels.size(); ++i)
    largest = std::max(largest, std::abs(int(a.pixels[i]) - int(b.pixels[i])));
  return largest;
}

}  // namespace

TEST_CASE("resize: photographs are within a grey level of Pillow's") {
  struct Case {
    const char* photograph;
    int shorter, side;
    const char* interpolation;
  };
  const auto [photograph, shorter, side, interpolation] = GENERATE(values<Case>({
      {"living/cat", 40, 32, "bicubic"},
      {"living/cat", 33, 32, "bilinear"},
      {"objects/cup", 45, 40, "bicubic"},
      {"objects/cup", 37, 32, "bilinear"},
      {"objects/cup", 24, 32, "bicubic"},
      {"living/cat", 150, 24, "bicubic"},
  }));
  CAPTURE(photograph, shorter, interpolation);
  const bool cubic = interpolation == std::string("bicubic");
  const std::string name = std::string(photograph).substr(std::string(photograph).find('/') + 1);
  const Image image = decoded_file(data + "photographs/train/" + photograph + ".png");
  const Image golden = decoded_file(data + "resized/" + name + "-" + std::to_string(shorter) + "-" +
                                    std::to_string(side) + "-" + interpolation + ".png");

  const Image seen =
      evaluated(image, {.output = {side, side},
                        .shorter_side = shorter,
                        .interpolation = cubic ? Interpolation::bicubic : Interpolation::bilinear});

  CHECK(largest_difference(seen, golden) <= 1);
  const Image other =
      evaluated(image, {.output = {side, side},
                        .shorter_side = shorter,
                        .interpolation = cubic ? Interpolation::bilinear : Interpolation::bicubic});
  CHECK(largest_difference(other, golden) > 4);  // so the filter shows
}
