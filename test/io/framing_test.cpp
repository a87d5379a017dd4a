#include "io/framing.hpp"

#include <catch2/catch.hpp>
#include <set>

#include "io/data_support.hpp"

using namespace ringtrain;
using namespace ringtrain::test;

namespace {

Image rendered(const Image& image, const Framing& framing, Extent output) {
  Image result;
  result.reshape(output);
  Renderer().run(image.view(), image.extent, framing, output, result.pixels.data());
  return result;
}

/// The value of the first channel of an output pixel.
int at(const Image& image, int y, int x) {
  return image.pixels[(std::size_t(y) * image.extent.width + x) * Image::channels];
}

Philox random_of(std::uint64_t sample) { return Philox(1, Purpose::augment, 0, sample); }

const InputRecipe cifar_tutorial{.output = {24, 24},
                                 .cover = {32, 32},
                                 .crop = Crop::random,
                                 .mirror = true,
                                 .brightness = {-63, 63},
                                 .contrast = {0.2f, 1.8f}};
const InputRecipe cifar_resnet{.crop = Crop::random, .padding = 4, .mirror = true};

}  // namespace

TEST_CASE("framing: evaluation cuts the centre of an image that needs no scaling") {
  const Image image = CountingDataset(1, {32, 32}).image(0);

  const Image seen = rendered(image, evaluation_framing(cifar_tutorial, image.extent), {24, 24});

  CHECK(at(seen, 0, 0) == at(image, 4, 4));
  CHECK(at(seen, 23, 23) == at(image, 27, 27));
}

TEST_CASE("framing: evaluation scales the short side and cuts the long one") {
  const InputRecipe recipe{.output = {224, 224}, .cover = {256, 256}};

  const Framing wide = evaluation_framing(recipe, {375, 500});
  const Framing tiny = evaluation_framing(recipe, {32, 32});

  CHECK(wide.scaled == Extent{256, 341});
  CHECK(wide.top == 16);
  CHECK(wide.left == 58);
  CHECK(tiny.scaled == Extent{256, 256});
}

TEST_CASE("framing: evaluation can stretch a central fraction") {
  const InputRecipe recipe{.output = {299, 299}, .central_fraction = 0.875f};

  const Framing framing = evaluation_framing(recipe, {400, 800});

  CHECK(framing.box.width == 700);
  CHECK(framing.box.height == 350);
  CHECK(framing.box.left == 50);
  CHECK(framing.box.top == 25);
  CHECK(framing.scaled == Extent{299, 299});
}

TEST_CASE("framing: a random window reaches every offset and both directions") {
  std::set<int> tops, lefts;
  std::set<bool> mirrored;
  for (std::uint64_t sample = 0; sample < 500; ++sample) {
    Philox random = random_of(sample);
    const Framing framing = training_framing(cifar_resnet, {32, 32}, random);
    tops.insert(framing.top);
    lefts.insert(framing.left);
    mirrored.insert(framing.mirrored);
  }

  const std::set<int> all{-4, -3, -2, -1, 0, 1, 2, 3, 4};
  CHECK(tops == all);
  CHECK(lefts == all);
  CHECK(mirrored.size() == 2);
}

TEST_CASE("framing: pixels shift, mirror and turn black outside as the framing says") {
  const Image image = CountingDataset(1, {32, 32}).image(0);
  const int top = GENERATE(-4, -1, 0, 3), left = GENERATE(-4, 0, 2);
  const bool mirrored = GENERATE(false, true);
  const Framing framing{{0, 0, 32, 32}, {32, 32}, top, left, mirrored};

  const Image seen = rendered(image, framing, {32, 32});

  for (int y = 0; y < 32; ++y)
    for (int x = 0; x < 32; ++x) {
      const int source_y = y + top, source_x = (mirrored ? 31 - x : x) + left;
      const bool inside = source_y >= 0 && source_y < 32 && source_x >= 0 && source_x < 32;
      REQUIRE(at(seen, y, x) == (inside ? at(image, source_y, source_x) : 0));
    }
}

TEST_CASE("framing: scaling and padding together leave black only outside") {
  const Image image = [] {
    Image white;
    white.reshape({10, 10});
    std::ranges::fill(white.pixels, std::uint8_t{255});
    return white;
  }();
  const Framing framing{{0, 0, 10, 10}, {32, 32}, -3, 2, true};

  const Image seen = rendered(image, framing, {32, 32});

  for (int y = 0; y < 32; ++y)
    for (int x = 0; x < 32; ++x) REQUIRE(at(seen, y, x) == (y >= 3 && x >= 2 ? 255 : 0));
}

TEST_CASE("framing: random parts have the area and aspect asked for and lie in the image") {
  const InputRecipe recipe{.output = {64, 64}, .crop = Crop::random_resized};
  const Extent image = GENERATE(Extent{375, 500}, Extent{500, 375}, Extent{333, 333});
  double least = 1, most = 0;
  for (std::uint64_t sample = 0; sample < 1000; ++sample) {
    Philox random = random_of(sample);
    const Framing framing = training_framing(recipe, image, random);
    const Box& box = framing.box;
    const double area = box.width * box.height / static_cast<double>(image.pixels());
    least = std::min(least, area);
    most = std::max(most, area);
    REQUIRE((box.left >= 0 && box.left + box.width <= image.width));
    REQUIRE((box.top >= 0 && box.top + box.height <= image.height));
    REQUIRE((area > 0.079 && area < 1.001));
    REQUIRE((box.width / box.height > 0.74 && box.width / box.height < 1.35));
    REQUIRE(framing.scaled == Extent{64, 64});
  }

  CHECK(least < 0.1);
  CHECK(most > 0.9);
}

TEST_CASE("framing: a random part of a very long image falls back to its centre") {
  const InputRecipe recipe{.output = {8, 8}, .crop = Crop::random_resized, .area = {0.9f, 1}};
  Philox random = random_of(0);

  const Framing framing = training_framing(recipe, {10, 1000}, random);

  CHECK(framing.box.height == 10);
  CHECK(framing.box.width == Approx(40. / 3));
  CHECK(framing.box.left == Approx((1000 - 40. / 3) / 2));
}

TEST_CASE("framing: distortions fill their ranges and are neutral where there are none") {
  float darkest = 0, brightest = 0;
  for (std::uint64_t sample = 0; sample < 1000; ++sample) {
    Philox random = random_of(sample);
    const Distortion drawn = draw_distortion(cifar_tutorial, random);
    darkest = std::min(darkest, drawn.brightness);
    brightest = std::max(brightest, drawn.brightness);
    REQUIRE((drawn.brightness >= -63 && drawn.brightness < 63));
    REQUIRE((drawn.contrast >= 0.2f && drawn.contrast < 1.8f));
    REQUIRE(drawn.saturation == 1);
    REQUIRE(drawn.hue == 0);
  }

  CHECK(darkest < -60);
  CHECK(brightest > 60);
}

TEST_CASE("framing: a reduced image is enough as long as nothing reduced is enlarged") {
  const Framing half{{0, 0, 100, 200}, {100, 50}};

  CHECK(least_extent(half, {200, 100}) == Extent{100, 50});
  CHECK(least_extent({{0, 0, 20, 20}, {100, 100}}, {200, 200}) == Extent{200, 200});
  CHECK(least_extent({{50, 50, 100, 100}, {50, 50}}, {200, 200}) == Extent{100, 100});
}

TEST_CASE("framing: a reduction renders to nearly the same picture") {
  const Image full = gradient_image({160, 240});
  const Framing framing{{24, 16, 96, 128}, {32, 24}, 0, 0, true};
  Image reduced;
  reduced.reshape({80, 120});
  Resizer().run(full.view(), {0, 0, 240, 160}, {80, 120}, {0, 0, {80, 120}}, false,
                reduced.pixels.data(), 360);
  Image from_reduced;
  from_reduced.reshape({32, 24});

  Renderer().run(reduced.view(), full.extent, framing, {32, 24}, from_reduced.pixels.data());

  CHECK(largest_difference(rendered(full, framing, {32, 24}).view(), from_reduced.view()) <= 2);
}
