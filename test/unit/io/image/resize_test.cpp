#include "io/image/resize.hpp"

#include <algorithm>

#include "ringtrain/base/philox.hpp"
#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::io;

namespace {

/// The image that the expected values below were computed from.
Image pattern(Extent extent) {
  Image image;
  image.reshape(extent);
  std::size_t i = 0;
  for (int y = 0; y < extent.height; ++y)
    for (int x = 0; x < extent.width; ++x)
      for (int c = 0; c < Image::channels; ++c)
        image.pixels[i++] = static_cast<std::uint8_t>(37 * x + 101 * y + 59 * c + x * y * 7);
  return image;
}

Image resized(const Image& image, const Box& box, Extent scaled, const ScaledWindow& window,
              bool mirrored = false, const RowKernels& kernels = usable_row_kernels().front()) {
  Image result;
  result.reshape(window.extent);
  Resizer(kernels).run(image.view(), box, scaled, window, mirrored, result.pixels.data(),
                       std::size_t(window.extent.width) * Image::channels);
  return result;
}

Image resized(const Image& image, const Box& box, Extent scaled) {
  return resized(image, box, scaled, {0, 0, scaled});
}

Box whole(const Image& image) {
  return {0, 0, static_cast<double>(image.extent.width), static_cast<double>(image.extent.height)};
}

std::vector<int> red_of(const Image& image) {
  std::vector<int> red;
  for (std::size_t i = 0; i < image.pixels.size(); i += Image::channels)
    red.push_back(image.pixels[i]);
  return red;
}

/// FNV-1a, 64 bits.
std::uint64_t fingerprint(const Image& image) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const auto byte : image.pixels) hash = (hash ^ byte) * 0x100000001b3;
  return hash;
}

}  // namespace

TEST_CASE("resize: halving averages with the weights 1 3 3 1") {
  Image line;
  line.reshape({1, 4});
  for (int x = 0; x < 4; ++x)
    for (int c = 0; c < 3; ++c) line.pixels[x * 3 + c] = static_cast<std::uint8_t>(x * x * 20);

  const Image half = resized(line, whole(line), {1, 2});

  // Values 0 20 80 180; at the edge the weights are 3 3 1: 140 / 7, and (20 + 240 + 540) / 7.
  CHECK(red_of(half) == std::vector{20, 114});
}

TEST_CASE("resize: doubling interpolates and repeats the edge") {
  Image line;
  line.reshape({1, 2});
  line.pixels = {0, 0, 0, 100, 100, 100};

  CHECK(red_of(resized(line, whole(line), {1, 4})) == std::vector{0, 25, 75, 100});
}

TEST_CASE("resize: equals Pillow's BILINEAR to the bit") {
  // PIL.Image.resize((width, height), BILINEAR, box) of Pillow 9.4
  const Image small = pattern({5, 7}), square = pattern({4, 4}), odd = pattern({13, 11});

  CHECK(red_of(resized(small, whole(small), {3, 4})) ==
        std::vector{64, 127, 121, 153, 165, 137, 121, 168, 130, 117, 123, 112});
  CHECK(fingerprint(resized(square, whole(square), {9, 6})) == 0xfa0d2fb50aa36a78);
  CHECK(fingerprint(resized(odd, {1, 2, 9, 10}, {5, 5})) == 0xafb04ddfaa5934e5);
  CHECK(fingerprint(resized(odd, {1.5, 0.25, 8.25, 12.25}, {7, 8})) == 0x9a02589bc0f1d22c);
  const Image large = pattern({50, 33});
  CHECK(fingerprint(resized(large, whole(large), {8, 24})) == 0xbfe87a89ad7311dc);
}

TEST_CASE("resize: every processor's loops make the same, narrow images and odd windows too") {
  const RowKernels kernels = GENERATE(from_range(usable_row_kernels()));
  CAPTURE(kernels.name);
  const RowKernels plain = plain_row_kernels();
  Philox random(3, Purpose::synthetic);
  const auto below = [&](int bound) { return static_cast<int>(random.below(bound)); };
  for (int i = 0; i < 300; ++i) {
    const Image image = pattern({1 + below(40), 1 + below(40)});
    const Extent scaled{1 + below(30), 1 + below(30)};
    const int top = below(scaled.height), left = below(scaled.width);
    const ScaledWindow window{
        top, left, {1 + below(scaled.height - top), 1 + below(scaled.width - left)}};
    const double width = 1 + below(image.extent.width), height = 1 + below(image.extent.height);
    const Box box{(image.extent.width - width) / 2, image.extent.height - height, width, height};
    const bool mirrored = i % 2 == 1;

    const Image result = resized(image, box, scaled, window, mirrored, kernels);

    CAPTURE(image.extent.height, image.extent.width, width, height);
    REQUIRE(result.pixels == resized(image, box, scaled, window, mirrored, plain).pixels);
  }
}

TEST_CASE("resize: an image at its own size is itself") {
  const Image image = pattern({5, 7});

  CHECK(resized(image, whole(image), image.extent).pixels == image.pixels);
}

TEST_CASE("resize: a window is cut from what the whole would be") {
  const Image image = pattern({13, 11});
  const Image all = resized(image, whole(image), {9, 8});

  const Image part = resized(image, whole(image), {9, 8}, {2, 3, {4, 5}});
  const Image mirrored = resized(image, whole(image), {9, 8}, {2, 3, {4, 5}}, true);

  for (int y = 0; y < 4; ++y)
    for (int x = 0; x < 5; ++x)
      for (int c = 0; c < 3; ++c) {
        const auto expected = all.pixels[((y + 2) * 8 + x + 3) * 3 + c];
        CHECK(part.pixels[(y * 5 + x) * 3 + c] == expected);
        CHECK(mirrored.pixels[(y * 5 + 4 - x) * 3 + c] == expected);
      }
}
