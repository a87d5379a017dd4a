#include <algorithm>
#include <set>

#include "io/image/augmented_image.hpp"
#include "support/catch.hpp"
#include "unit/io/dataset/data_support.hpp"

using namespace ringtrain;
using namespace ringtrain::io;
using namespace ringtrain::test;

namespace {

Image rendered(const Image& image, const CropTransform& crop, Extent output) {
  Image result;
  result.reshape(output);
  std::ranges::fill(result.pixels, std::uint8_t{171});  // a recycled batch is not black
  Renderer().run({image.view()}, crop, output, result.pixels.data());
  return result;
}

/// The value of the first channel of an output pixel.
int at(const Image& image, int y, int x) {
  return image.pixels[(std::size_t(y) * image.extent.width + x) * Image::channels];
}

Philox random_of(std::uint64_t sample) { return Philox(1, Purpose::augment, 0, sample); }

AugmentedImage augmented(const Augmentation& recipe, Extent full, std::uint64_t sample) {
  AugmentedImage image(recipe, full);
  Philox random = random_of(sample);
  PixelOperator pixels;
  augment(image, random, pixels);
  return image;
}

const Augmentation cifar_tutorial{
    .output = {24, 24},
    .cover = {32, 32},
    .operations = {RandomCrop{}, RandomHorizontalFlip{},
                   RandomColorJitter{.brightness = {-63, 63}, .contrast = {0.2f, 1.8f}}}};
const Augmentation cifar_resnet{.operations = {RandomCrop{.padding = 4}, RandomHorizontalFlip{}}};

}  // namespace

TEST_CASE("crop: evaluation cuts the centre of an image that needs no scaling") {
  const Image image = CountingDataset(1, {32, 32}).image(0);

  const Image seen = rendered(image, AugmentedImage(cifar_tutorial, image.extent).crop(), {24, 24});

  CHECK(at(seen, 0, 0) == at(image, 4, 4));
  CHECK(at(seen, 23, 23) == at(image, 27, 27));
}

TEST_CASE("crop: evaluation scales the short side and cuts the long one") {
  const Augmentation recipe{.output = {224, 224}, .cover = {256, 256}};

  const CropTransform wide = AugmentedImage(recipe, {375, 500}).crop();
  const CropTransform tiny = AugmentedImage(recipe, {32, 32}).crop();

  CHECK(wide.scaled == Extent{256, 341});
  CHECK(wide.top == 16);
  CHECK(wide.left == 58);
  CHECK(tiny.scaled == Extent{256, 256});
}

TEST_CASE("crop: evaluation can stretch a central fraction") {
  const Augmentation recipe{.output = {299, 299}, .central_fraction = 0.875f};

  const CropTransform crop = AugmentedImage(recipe, {400, 800}).crop();

  CHECK(crop.box.width == 700);
  CHECK(crop.box.height == 350);
  CHECK(crop.box.left == 50);
  CHECK(crop.box.top == 25);
  CHECK(crop.scaled == Extent{299, 299});
}

TEST_CASE("crop: a random window reaches every offset and both directions") {
  std::set<int> tops, lefts;
  std::set<bool> mirrored;
  for (std::uint64_t sample = 0; sample < 500; ++sample) {
    const CropTransform crop = augmented(cifar_resnet, {32, 32}, sample).crop();
    tops.insert(crop.top);
    lefts.insert(crop.left);
    mirrored.insert(crop.mirrored);
  }

  const std::set<int> all{-4, -3, -2, -1, 0, 1, 2, 3, 4};
  CHECK(tops == all);
  CHECK(lefts == all);
  CHECK(mirrored.size() == 2);
}

TEST_CASE("crop: pixels shift, mirror and turn black outside as the crop says") {
  const Image image = CountingDataset(1, {32, 32}).image(0);
  const int top = GENERATE(-4, -1, 0, 3), left = GENERATE(-4, 0, 2);
  const bool mirrored = GENERATE(false, true);
  const CropTransform crop{{0, 0, 32, 32}, {32, 32}, top, left, mirrored};

  const Image seen = rendered(image, crop, {32, 32});

  for (int y = 0; y < 32; ++y)
    for (int x = 0; x < 32; ++x) {
      const int source_y = y + top, source_x = (mirrored ? 31 - x : x) + left;
      const bool inside = source_y >= 0 && source_y < 32 && source_x >= 0 && source_x < 32;
      REQUIRE(at(seen, y, x) == (inside ? at(image, source_y, source_x) : 0));
    }
}

TEST_CASE("crop: outside is the image, mirrored at its edge, where the crop says so") {
  const Image image = CountingDataset(1, {32, 32}).image(0);
  const int top = GENERATE(-4, -1, 0, 3), left = GENERATE(-4, 0, 2);
  const bool mirrored = GENERATE(false, true);
  CropTransform crop{{0, 0, 32, 32}, {32, 32}, top, left, mirrored};
  crop.reflected = true;
  const auto reflected = [](int place) {
    return place < 0 ? -place : place > 31 ? 62 - place : place;  // as NumPy's mode="reflect"
  };

  const Image seen = rendered(image, crop, {32, 32});

  for (int y = 0; y < 32; ++y)
    for (int x = 0; x < 32; ++x) {
      const int source_y = y + top, source_x = (mirrored ? 31 - x : x) + left;
      REQUIRE(at(seen, y, x) == at(image, reflected(source_y), reflected(source_x)));
    }
}

TEST_CASE("crop: scaling and padding together leave black only outside") {
  const Image image = [] {
    Image white;
    white.reshape({10, 10});
    std::ranges::fill(white.pixels, std::uint8_t{255});
    return white;
  }();
  const CropTransform crop{{0, 0, 10, 10}, {32, 32}, -3, 2, true};

  const Image seen = rendered(image, crop, {32, 32});

  for (int y = 0; y < 32; ++y)
    for (int x = 0; x < 32; ++x) REQUIRE(at(seen, y, x) == (y >= 3 && x >= 2 ? 255 : 0));
}

TEST_CASE("crop: random parts have the area and aspect asked for and lie in the image") {
  const Augmentation recipe{.output = {64, 64}, .operations = {RandomResizedCrop{}}};
  const Extent image = GENERATE(Extent{375, 500}, Extent{500, 375}, Extent{333, 333});
  double least = 1, most = 0;
  for (std::uint64_t sample = 0; sample < 1000; ++sample) {
    const CropTransform crop = augmented(recipe, image, sample).crop();
    const Box& box = crop.box;
    const double area = box.width * box.height / static_cast<double>(image.pixels());
    least = std::min(least, area);
    most = std::max(most, area);
    REQUIRE((box.left >= 0 && box.left + box.width <= image.width));
    REQUIRE((box.top >= 0 && box.top + box.height <= image.height));
    REQUIRE((area > 0.079 && area < 1.001));
    REQUIRE((box.width / box.height > 0.74 && box.width / box.height < 1.35));
    REQUIRE(crop.scaled == Extent{64, 64});
  }

  CHECK(least < 0.1);
  CHECK(most > 0.9);
}

TEST_CASE("crop: a random part of a very long image falls back to its centre") {
  const Augmentation recipe{.output = {8, 8}, .operations = {RandomResizedCrop{.area = {0.9f, 1}}}};
  const CropTransform crop = augmented(recipe, {10, 1000}, 0).crop();

  CHECK(crop.box.height == 10);
  CHECK(crop.box.width == Approx(40. / 3));
  CHECK(crop.box.left == Approx((1000 - 40. / 3) / 2));
}

TEST_CASE("augmentation: colour jitter fills its ranges and is neutral where there are none") {
  float darkest = 0, brightest = 0;
  for (std::uint64_t sample = 0; sample < 1000; ++sample) {
    const ColorJitter drawn = augmented(cifar_tutorial, {32, 32}, sample).jitter;
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

TEST_CASE("augmentation: operations change pixels between the crop and the batch") {
  const Image stored = CountingDataset(1, {8, 8}).image(0);
  const Augmentation recipe{.output = {8, 8}};
  Image out;
  out.reshape({8, 8});
  int renders = 0;
  AugmentedImage image(recipe, stored.extent, [&](const CropTransform& crop) {
    ++renders;
    Renderer().run({stored.view()}, crop, recipe.output, out.pixels.data());
    return std::span(out.pixels);
  });

  image.crop().mirrored = true;
  const int before = image.pixels()[0];
  image.pixels()[0] = 77;

  CHECK(before == at(stored, 0, 7));
  CHECK(at(out, 0, 0) == 77);
  CHECK(at(out, 0, 1) == at(stored, 0, 6));
  CHECK(renders == 1);
  CHECK_THROWS_AS(image.crop(), Error);
}

TEST_CASE("augmentation: cutout erases a square, cut off by the border or wholly inside") {
  const bool inside = GENERATE(false, true);
  const Augmentation recipe{.output = {20, 24},
                            .operations = {Cutout{.size = 8, .inside = inside}}};
  std::set<int> tops, lefts, heights, widths;
  for (std::uint64_t sample = 0; sample < 2000; ++sample) {
    const Erased e = augmented(recipe, {20, 24}, sample).erased;
    REQUIRE((e.top >= 0 && e.height > 0 && e.top + e.height <= 20));
    REQUIRE((e.left >= 0 && e.width > 0 && e.left + e.width <= 24));
    tops.insert(e.top);
    lefts.insert(e.left);
    heights.insert(e.height);
    widths.insert(e.width);
  }

  CHECK(tops.size() == (inside ? 13 : 16));
  CHECK(lefts.size() == (inside ? 17 : 20));
  CHECK(*heights.begin() == (inside ? 8 : 4));
  CHECK(*widths.rbegin() == 8);
}

TEST_CASE("augmentation: what is erased in a colour is erased here") {
  const Colour grey{120, 121, 122};
  const AugmentationOperation operation =
      GENERATE_COPY(AugmentationOperation(RandomErasing{.probability = 1, .colour = grey}),
                    AugmentationOperation(Cutout{.size = 4, .colour = grey}));
  const Augmentation recipe{.output = {16, 16}, .operations = {operation}};
  const Image stored = CountingDataset(1, {16, 16}).image(0);
  Image out = stored;
  AugmentedImage image(recipe, stored.extent,
                       [&](const CropTransform&) { return std::span(out.pixels); });
  Philox random = random_of(5), again = random;
  PixelOperator pixels;
  augment(image, random, pixels);
  auto on_device = operation;
  std::visit(
      [](auto& o) {
        if constexpr (requires { o.colour; }) o.colour.reset();
      },
      on_device);
  const Augmentation device_recipe{.output = {16, 16}, .operations = {on_device}};
  AugmentedImage told(device_recipe, stored.extent);
  augment(told, again, pixels);

  REQUIRE(told.erased.height > 0);
  CHECK(image.erased.height == 0);
  for (int y = 0; y < 16; ++y)
    for (int x = 0; x < 16; ++x)
      REQUIRE(at(out, y, x) == (told.erased.covers(y, x) ? 120 : at(stored, y, x)));
}

TEST_CASE("augmentation: a flip before a crop is kept") {
  const Augmentation recipe{
      .operations = {RandomHorizontalFlip{},
                     GENERATE(as<AugmentationOperation>{}, RandomCrop{4}, RandomResizedCrop{})}};
  std::set<bool> mirrored;
  for (std::uint64_t sample = 0; sample < 50; ++sample)
    mirrored.insert(augmented(recipe, {32, 32}, sample).crop().mirrored);

  CHECK(mirrored.size() == 2);
}

TEST_CASE("crop: what is needed of an image lies around what is shown") {
  // 200 x 400 pixels at half their size, of which 20 x 30 outputs from (10, 50) on are shown.
  const CropRequest need =
      request_for({{0, 0, 400, 200}, {100, 200}, 10, 50}, {200, 400}, {20, 30});

  CHECK(need.top == 20 - 3);
  CHECK(need.left == 100 - 3);
  CHECK(need.extent == Extent{40 + 6, 60 + 6});
  CHECK(need.reduction == 1);
}

TEST_CASE("crop: what is needed ends with the image, and has a pixel where nothing is shown") {
  const CropRequest all = request_for({{0, 0, 5, 5}, {5, 5}, -3, -3}, {5, 5}, {20, 20});
  const CropRequest none = request_for({{0, 0, 5, 5}, {5, 5}, 9, -30}, {5, 5}, {20, 20});

  CHECK(all.extent == Extent{5, 5});
  CHECK((none.extent.height >= 1 && none.extent.width >= 1));
}

TEST_CASE("crop: a reduced image is still twice as large as what is made of it") {
  const auto reduction = [](Extent scaled) {
    return request_for({{50, 50, 800, 400}, scaled}, {500, 900}, scaled).reduction;
  };

  CHECK(reduction({400, 800}) == 1);
  CHECK(reduction({101, 100}) == 1);
  CHECK(reduction({100, 100}) == 2);
  CHECK(reduction({1000, 10}) == 1);
  CHECK(reduction({20, 40}) == 10);
}

TEST_CASE("crop: a part renders to the picture that the whole gives") {
  const Image full = gradient_image({60, 90});
  const Augmentation recipe{.output = {24, 20},
                            .operations = {RandomResizedCrop{}, RandomHorizontalFlip{}}};
  for (std::uint64_t sample = 0; sample < 100; ++sample) {
    const CropTransform crop = augmented(recipe, full.extent, sample).crop();
    const CropRequest need = request_for(crop, full.extent, recipe.output);
    Image part, seen;
    part.reshape(need.extent);
    seen.reshape(recipe.output);
    for (int y = 0; y < need.extent.height; ++y)
      std::copy_n(&full.pixels[((need.top + y) * 90 + need.left) * 3], need.extent.width * 3,
                  &part.pixels[y * need.extent.width * 3]);

    Renderer().run({part.view(), need.top, need.left}, crop, recipe.output, seen.pixels.data());

    REQUIRE(seen.pixels == rendered(full, crop, recipe.output).pixels);
  }
}

TEST_CASE("crop: a reduction renders to nearly the same picture") {
  const Image full = gradient_image({160, 240});
  const CropTransform crop{{24, 16, 96, 128}, {32, 24}, 0, 0, true};
  Image reduced;
  reduced.reshape({80, 120});
  Resizer().run(full.view(), {0, 0, 240, 160}, {80, 120}, {0, 0, {80, 120}}, false,
                reduced.pixels.data(), 360);
  Image from_reduced;
  from_reduced.reshape({32, 24});

  Renderer().run({reduced.view(), 0, 0, 2}, crop, {32, 24}, from_reduced.pixels.data());

  CHECK(largest_difference(rendered(full, crop, {32, 24}).view(), from_reduced.view()) <= 2);
}
