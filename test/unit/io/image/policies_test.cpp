#include "io/image/augment/policies.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>

#include "io/image/augmented_image.hpp"
#include "ringtrain/base/text.hpp"
#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::io;

namespace {

constexpr Extent extent{200, 331};
constexpr int draws = 20'000;

using Drawn = std::vector<PixelOperation>;

template <class Policy>
Drawn drawn(const Policy& policy, std::uint64_t sample) {
  Philox random(7, Purpose::augment, 3, sample);
  return draw_operations(policy, extent, random);
}

/// The magnitudes that are drawn, by operation, and how often.
using Magnitudes = std::map<std::string, std::map<double, int>>;

template <class Policy>
Magnitudes seen(const Policy& policy) {
  Magnitudes all;
  for (int sample = 0; sample < draws; ++sample)
    for (const auto& [kind, magnitude] : drawn(policy, sample))
      ++all[std::string(name_of(kind))][magnitude];
  return all;
}

int count_of(const std::map<double, int>& magnitudes) {
  int all = 0;
  for (const auto& [magnitude, count] : magnitudes) all += count;
  return all;
}

/// Whether `count` is what `draws` draws of this probability give, within five deviations.
bool fits(int count, double probability, double of = draws) {
  return std::abs(count - of * probability) <= 5 * std::sqrt(of * probability * (1 - probability));
}

double largest(const std::map<double, int>& magnitudes) { return magnitudes.rbegin()->first; }
double least(const std::map<double, int>& magnitudes) { return magnitudes.begin()->first; }

}  // namespace

TEST_CASE("policies: TrivialAugmentWide draws each of 14 operations and 31 magnitudes evenly") {
  Magnitudes all = seen(TrivialAugmentWide{});

  REQUIRE(all.size() == 14);
  for (const auto& [name, magnitudes] : all) {
    CAPTURE(name);
    CHECK(fits(count_of(magnitudes), 1 / 14.));
  }
  for (const char* name :
       {"ShearX", "ShearY", "Rotate", "Brightness", "Color", "Contrast", "Sharpness"}) {
    CAPTURE(name);
    CHECK(all[name].size() == 61);
    for (const auto& [magnitude, count] : all[name]) {
      const bool neutral = magnitude == 0 || magnitude == 1;  // of both signs
      CHECK(fits(count, (neutral ? 2 : 1) / 62. / 14));
    }
  }
  CHECK(largest(all["ShearX"]) == 0.99);
  CHECK(least(all["ShearY"]) == -0.99);
  CHECK(largest(all["Rotate"]) == 135);
  CHECK(all["Rotate"].contains(-4.5));
  CHECK(largest(all["TranslateX"]) == 32);
  CHECK(all["TranslateY"].contains(-30));  // 30.93, cut
  CHECK(largest(all["Color"]) == 1.99);
  CHECK(least(all["Sharpness"]) == Approx(0.01));
  CHECK(all["Solarize"].size() == 31);
  CHECK(all["Solarize"].contains(246.5));
  CHECK(least(all["Solarize"]) == 0);
  std::set<double> bits;
  for (const auto& [magnitude, count] : all["Posterize"]) bits.insert(magnitude);
  CHECK(bits == std::set<double>{2, 3, 4, 5, 6, 7, 8});
  CHECK(fits(all["Posterize"][8], 3 / 31. / 14));  // bins 0 to 2
  CHECK(fits(all["Posterize"][7], 5 / 31. / 14));
}

TEST_CASE("policies: RandAugment draws two operations at bin 9 of 31, or what its name says") {
  Magnitudes all = seen(RandAugment{});

  REQUIRE(all.size() == 14);
  for (const auto& [name, magnitudes] : all) CHECK(fits(count_of(magnitudes), 1 / 14., 2 * draws));
  for (const char* name : {"ShearX", "Rotate", "TranslateX", "Brightness"})
    CHECK(all[name].size() == 2);
  CHECK(largest(all["ShearX"]) == Approx(0.09));
  CHECK(largest(all["TranslateX"]) == 45);  // 150 of 331
  CHECK(least(all["TranslateY"]) == -27);   // 27.19
  CHECK(largest(all["Rotate"]) == 9);
  CHECK(largest(all["Contrast"]) == Approx(1.27));
  CHECK(all["Posterize"].begin()->first == 7);
  CHECK(all["Solarize"].begin()->first == 178.5);
  CHECK(drawn(RandAugment{.count = 5}, 1).size() == 5);
}

TEST_CASE("policies: AutoAugment draws the rows of its table with their probabilities") {
  Magnitudes cifar10 = seen(AutoAugment{AutoAugment::Table::cifar10});
  Magnitudes imagenet = seen(AutoAugment{AutoAugment::Table::imagenet});
  int images_unchanged = 0;
  for (int sample = 0; sample < draws; ++sample)
    images_unchanged += drawn(AutoAugment{AutoAugment::Table::imagenet}, sample).empty();

  // Of torchvision's tables, counted: the sum of an operation's probabilities over 25 rows.
  CHECK(fits(count_of(cifar10["TranslateY"]), (0.7 + 0.4 + 0.9 + 0.7 + 0.7) / 25, draws));
  CHECK(fits(count_of(cifar10["Invert"]), (0.1 + 0.1) / 25, draws));
  CHECK(fits(count_of(cifar10["Sharpness"]), (0.8 + 0.9 + 0.3 + 0.6 + 0.2) / 25, draws));
  CHECK(fits(count_of(cifar10["Equalize"]),
             (0.9 + 0.6 + 0.5 + 0.3 + 0.2 + 0.2 + 0.6 + 0.6 + 0.8) / 25, draws));
  CHECK(fits(count_of(imagenet["Rotate"]), (0.6 + 0.8 + 0.2 + 0.8 + 0.4 + 0.8) / 25, draws));
  CHECK(fits(count_of(imagenet["Posterize"]), (0.4 + 0.6 + 0.6 + 0.8 + 0.4) / 25, draws));
  CHECK(fits(count_of(imagenet["ShearX"]), 0.6 / 25, draws));
  CHECK(imagenet.size() == 10);
  CHECK(!imagenet.contains("TranslateX"));
  CHECK(least(imagenet["ShearX"]) == Approx(-0.3 * 5 / 9));
  CHECK(largest(imagenet["Rotate"]) == 30);
  CHECK(largest(imagenet["Contrast"]) == Approx(1.8));
  CHECK(cifar10["Posterize"].begin()->first == 5);  // bin 7
  CHECK(imagenet["Solarize"].contains(170));        // bin 3
  // A row is left out where neither of its two happens.
  const double none =
      (0.6 * 0.4 + 0.4 * 0.4 + 0.2 * 0.4 + 0.4 * 0.4 + 0.6 * 0.8 + 0.6 * 0.2 + 0.4 * 0.4 + 0 +
       0.8 * 0.4 + 0.4 * 0.6 + 0.2 * 0.6 + 0.6 * 0.4 + 0.2 + 0 + 0 + 0 + 0.2 * 0.2 + 0.6 * 0.4 + 0 +
       0.6 * 0.4 + 0.6 * 0.8 + 0.4 * 0.4 + 0 + 0 + 0.2 * 0.4) /
      25;
  CHECK(fits(images_unchanged, none));
}

TEST_CASE("policies: timm's draws two of 15 operations, each half the time, at a normal level") {
  Magnitudes all = seen(TimmRandAugment{.magnitude = 9, .deviation = 0.5});

  REQUIRE(all.size() == 15);
  for (const auto& [name, magnitudes] : all) {
    CAPTURE(name);
    CHECK(fits(count_of(magnitudes), 1 / 30., 2 * draws));
  }
  double sum = 0, squares = 0;
  for (const auto& [magnitude, count] : all["Rotate"]) {
    sum += std::abs(magnitude) / 3 * count;
    squares += (std::abs(magnitude) / 3 - 9) * (std::abs(magnitude) / 3 - 9) * count;
  }
  const int rotations = count_of(all["Rotate"]);
  CHECK(sum / rotations == Approx(9).margin(0.1));
  CHECK(std::sqrt(squares / rotations) == Approx(0.5).margin(0.06));
  CHECK(largest(all["Rotate"]) <= 30);
  CHECK(least(all["Color"]) == 0.1);  // 1 - 0.9 and below
  CHECK(largest(all["TranslateX"]) > 0.4 * extent.width);
  CHECK(largest(all["TranslateY"]) <= 0.45 * extent.height);
  CHECK(all["Posterize"].contains(1));  // from 7.5 on
  CHECK(all["Posterize"].contains(0));  // 10
  CHECK(largest(all["SolarizeAdd"]) == 110);
}

TEST_CASE("policies: names are torchvision's and timm's") {
  CHECK(!parse_policy("none"));
  CHECK(std::holds_alternative<TrivialAugmentWide>(*parse_policy("ta_wide")));
  CHECK(std::get<RandAugment>(*parse_policy("ra")).magnitude == 9);
  CHECK(std::get<RandAugment>(*parse_policy("ra-m15-n3")).magnitude == 15);
  CHECK(std::get<RandAugment>(*parse_policy("ra-m15-n3")).count == 3);
  CHECK(std::get<AutoAugment>(*parse_policy("cifar10")).table == AutoAugment::Table::cifar10);
  CHECK(std::get<AutoAugment>(*parse_policy("imagenet")).table == AutoAugment::Table::imagenet);
  const auto timm = std::get<TimmRandAugment>(*parse_policy("rand-m7-n3-mstd0.5-inc1"));
  CHECK(timm.magnitude == 7);
  CHECK(timm.count == 3);
  CHECK(timm.deviation == 0.5);
  CHECK(std::get<TimmRandAugment>(*parse_policy("rand-inc1")).magnitude == 10);
}

TEST_CASE("policies: other names are refused") {
  const auto name = GENERATE("", "trivial", "ra-", "ra-m31", "ra-m9.5", "ra-n0", "ra-m9-m9", "rand",
                             "rand-m9", "rand-m9-mstd0.5", "rand-m9-inc0", "rand-m11-inc1",
                             "rand-mnan-inc1", "rand-m9-mmax20-inc1", "rand-m9-n-inc1", "augmix");
  CAPTURE(name);
  CHECK_THROWS_AS(parse_policy(name), BadValue);
}

namespace {

std::vector<Erased> erasures(const RandomErasing& how, Extent output) {
  const Augmentation recipe{.output = output, .operations = {how}};
  std::vector<Erased> all;
  for (int sample = 0; sample < draws; ++sample) {
    AugmentedImage image(recipe, output);
    Philox random(7, Purpose::augment, 3, sample);
    PixelOperator pixels;
    augment(image, random, pixels);
    all.push_back(image.erased);
  }
  return all;
}

}  // namespace

TEST_CASE("random erasing: rectangles have the probability, area and aspect of torchvision's") {
  const bool even = GENERATE(false, true);
  const RandomErasing how{.probability = 0.25, .even_aspect = even, .value = 3};
  double areas = 0, wide = 0;
  int erased = 0, top = 0, bottom = 0;

  for (const Erased& e : erasures(how, {100, 90})) {
    if (e.height == 0) continue;
    ++erased;
    CHECK((e.top >= 0 && e.left >= 0 && e.value == 3));
    CHECK((e.top + e.height <= 100 && e.left + e.width <= 90 && e.height < 100 && e.width < 90));
    areas += e.height * e.width / 9000.0;
    wide += e.width > e.height;
    top += e.top == 0;
    bottom += e.top + e.height == 100;
  }

  CHECK(fits(erased, 0.25));
  CHECK(areas / erased == Approx(0.174).margin(0.007));
  // As drawn by Python's random numbers; what does not fit is drawn again.
  CHECK(wide / erased == Approx(even ? 0.224 : 0.489).margin(0.03));
  CHECK(top > 0);
  CHECK(bottom > 0);
}

TEST_CASE("random erasing: what never fits erases nothing, and probability 0 neither") {
  CHECK(std::ranges::all_of(erasures({.probability = 1, .area = {1, 1}}, {8, 8}),
                            [](const Erased& e) { return e.height == 0; }));
  CHECK(std::ranges::all_of(erasures({}, {8, 8}), [](const Erased& e) { return e.height == 0; }));
}
