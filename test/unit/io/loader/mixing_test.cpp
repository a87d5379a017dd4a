#include "io/loader/mixing.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::io;

namespace {

constexpr Extent extent{12, 20};
constexpr int channels = 3;

Philox random_of(int pair) { return Philox(3, Purpose::mix, 0, pair); }

/// An image of other values at each place, and its target.
struct Mixed {
  std::vector<std::uint8_t> pixels;
  Target target;

  Mixed(int first, int label) : pixels(extent.pixels() * channels), target{label} {
    for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = (first + 7 * i) % 256;
  }
  operator MixedImage() { return {pixels, target}; }
};

}  // namespace

TEST_CASE("mixing: parts have the mean and variance of their beta distribution") {
  const double alpha = GENERATE(0.1, 0.2, 0.8, 1.0, 3.0);
  CAPTURE(alpha);
  constexpr int pairs = 20'000;
  double sum = 0, squares = 0;
  for (int pair = 0; pair < pairs; ++pair) {
    const double part = double(draw_mix({.mixup = alpha}, extent, random_of(pair)).kept) / Mix::one;
    sum += part;
    squares += (part - 0.5) * (part - 0.5);
  }
  const double variance = 1 / (4 * (2 * alpha + 1));

  CHECK(std::abs(sum / pairs - 0.5) < 4 * std::sqrt(variance / pairs));
  CHECK(squares / pairs == Approx(variance).epsilon(0.05));
}

TEST_CASE("mixing: a box lies in the image and is what a pair does not keep") {
  int whole = 0;
  double cut = 0;
  for (int pair = 0; pair < 5000; ++pair) {
    const Mix drawn = draw_mix({.cutmix = 1}, extent, random_of(pair));
    if (!drawn.cuts()) {
      REQUIRE(drawn.kept == Mix::one);
      ++whole;
      continue;
    }
    REQUIRE((drawn.top >= 0 && drawn.top + drawn.height <= extent.height));
    REQUIRE((drawn.left >= 0 && drawn.left + drawn.width <= extent.width && drawn.width > 0));
    const double share = double(drawn.height * drawn.width) / double(extent.pixels());
    REQUIRE(std::abs(share + double(drawn.kept) / Mix::one - 1) < 1e-4);
    cut += share;
  }

  CHECK(whole < 700);  // boxes without a pixel
  // without the border the mean would be 1/2 as of Beta(1, 1)
  CHECK(cut / 5000 > 0.2);
  CHECK(cut / 5000 < 0.45);
}

TEST_CASE("mixing: so many pairs are mixed, and in so many of them a box is exchanged") {
  const Mixing both{.mixup = 0.8, .cutmix = 1, .probability = 0.6, .cutmix_share = 0.25};
  int mixed = 0, cut = 0;
  for (int pair = 0; pair < 10'000; ++pair) {
    const Mix drawn = draw_mix(both, {224, 224}, random_of(pair));
    mixed += drawn.kept != Mix::one;
    cut += drawn.cuts();
  }

  CHECK(std::abs(mixed - 6000) < 250);
  CHECK(std::abs(cut - 1500) < 160);
}

TEST_CASE("mixing: mixup blends both images by the part they keep, rounded") {
  const auto kept = GENERATE(0u, 1u, 20'000u, 32'768u, 50'001u, 65'535u);
  const double part = double(kept) / Mix::one;
  Mixed a(0, 4), b(100, 9);
  const Mixed before_a = a, before_b = b;

  mix({.kept = kept}, extent, channels, a, b);

  for (std::size_t i = 0; i < a.pixels.size(); ++i) {
    const double of_a = before_a.pixels[i], of_b = before_b.pixels[i];
    REQUIRE(a.pixels[i] == std::floor(part * of_a + (1 - part) * of_b + 0.5));
    REQUIRE(b.pixels[i] == std::floor(part * of_b + (1 - part) * of_a + 0.5));
  }
  CHECK(a.target.share_of(4) == float(part));
  CHECK(a.target.share_of(9) == float(1 - part));
  CHECK(b.target.share_of(9) == float(part));
  CHECK(a.target.weight >= 0.5f);
  CHECK(a.target.label == (part < 0.5 ? 9 : 4));
}

TEST_CASE("mixing: CutMix exchanges the box, and nothing else") {
  Mixed a(0, 4), b(100, 4);
  const Mixed before_a = a, before_b = b;
  const Mix box{.kept = 3 * Mix::one / 4, .top = 2, .left = 5, .height = 6, .width = 10};

  mix(box, extent, channels, a, b);

  for (std::size_t i = 0; i < a.pixels.size(); ++i) {
    const int row = int(i) / channels / extent.width, column = int(i) / channels % extent.width;
    const bool inside = row >= 2 && row < 8 && column >= 5 && column < 15;
    REQUIRE(a.pixels[i] == (inside ? before_b : before_a).pixels[i]);
    REQUIRE(b.pixels[i] == (inside ? before_a : before_b).pixels[i]);
  }
  CHECK(a.target.share_of(4) == 1);
}
