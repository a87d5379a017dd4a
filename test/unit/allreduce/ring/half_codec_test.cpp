#include "allreduce/ring/half_codec.hpp"

#include <bit>
#include <cmath>
#include <random>

#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::allreduce;

namespace {

// What the bits of a 16-bit number mean, by the definition of the formats.
double meaning(Element element, unsigned h) {
  const int mantissa_bits = element == Element::fp16 ? 10 : 7,
            bias = element == Element::fp16 ? 15 : 127;
  const unsigned mantissa = h & ((1u << mantissa_bits) - 1);
  const int exponent = static_cast<int>((h & 0x7fff) >> mantissa_bits), all = 2 * bias + 1;
  const double sign = h & 0x8000 ? -1 : 1, unit = std::ldexp(1, -mantissa_bits);
  if (exponent == all) return mantissa == 0 ? sign * INFINITY : NAN;
  if (exponent == 0) return sign * std::ldexp(mantissa * unit, 1 - bias);
  return sign * std::ldexp(1 + mantissa * unit, exponent - bias);
}

std::vector<float> all_numbers(Element element, const NarrowKernels& kernels) {
  std::vector<std::uint16_t> rounded(65536);
  for (unsigned h = 0; h < 65536; ++h) rounded[h] = static_cast<std::uint16_t>(h);
  std::vector<float> values(rounded.size());
  kernels.widen(element, 1, rounded.data(), values.data(), values.size());
  return values;
}

std::uint16_t narrowed(Element element, float value, const NarrowKernels& kernels) {
  std::uint16_t rounded = 0;
  kernels.narrow(element, 1, &value, &rounded, 1);
  return rounded;
}

}  // namespace

TEST_CASE("narrow numbers: each 16-bit number means what the format says, and comes back") {
  const Element element = GENERATE(Element::fp16, Element::bf16);
  for (const NarrowKernels& kernels : usable_narrow_kernels()) {
    CAPTURE(name_of(element), kernels.name);
    const std::vector<float> values = all_numbers(element, kernels);
    std::vector<std::uint16_t> again(values.size());
    kernels.narrow(element, 1, values.data(), again.data(), values.size());
    for (unsigned h = 0; h < 65536; ++h) {
      const double expected = meaning(element, h);
      if (std::isnan(expected)) {
        REQUIRE(std::isnan(values[h]));
        REQUIRE(std::isnan(meaning(element, again[h])));
        continue;
      }
      REQUIRE(static_cast<double>(values[h]) == expected);
      REQUIRE(again[h] == h);
    }
  }
}

TEST_CASE("narrow numbers: what lies between two goes to the nearest, halfway to the even one") {
  const Element element = GENERATE(Element::fp16, Element::bf16);
  const unsigned end = element == Element::fp16 ? 0x7c00 : 0x7f80;
  for (const NarrowKernels& kernels : usable_narrow_kernels())
    for (unsigned h = 0; h + 1 < end; ++h) {
      const float low = static_cast<float>(meaning(element, h));
      const float high = static_cast<float>(meaning(element, h + 1));
      const float middle = low + (high - low) / 2;
      CAPTURE(name_of(element), kernels.name, h);
      REQUIRE(narrowed(element, middle, kernels) == (h % 2 == 0 ? h : h + 1));
      REQUIRE(narrowed(element, -middle, kernels) == ((h % 2 == 0 ? h : h + 1) | 0x8000));
      REQUIRE(narrowed(element, std::nextafter(middle, low), kernels) == h);
      REQUIRE(narrowed(element, std::nextafter(middle, high), kernels) == h + 1);
    }
}

TEST_CASE("narrow numbers: all instruction sets have the same bits") {
  std::mt19937 random(7);
  std::vector<float> values(100'003);
  for (float& value : values) value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
  const Element element = GENERATE(Element::fp16, Element::bf16);
  std::vector<std::uint16_t> expected(values.size());
  const NarrowKernels plain = usable_narrow_kernels().back();
  plain.narrow(element, 3.f, values.data(), expected.data(), values.size());
  for (const NarrowKernels& kernels : usable_narrow_kernels()) {
    CAPTURE(kernels.name);
    std::vector<std::uint16_t> rounded(values.size());
    kernels.narrow(element, 3.f, values.data(), rounded.data(), values.size());
    CHECK(rounded == expected);
    CHECK(kernels.largest(values.data(), values.size()) ==
          plain.largest(values.data(), values.size()));
  }
}

TEST_CASE("scale_for: fp16's range fits the largest number, and rounding does not change it") {
  const float largest = GENERATE(1e-44f, 1e-38f, 3.1e-5f, 1.f, 1.9999f, 65536.f, 3e38f);
  std::vector<float> values{0, -largest, largest / 3, largest / 1e6f, INFINITY, NAN};
  const float scale = scale_for(Element::fp16, values);
  CAPTURE(largest, scale);
  int exponent = 0;
  CHECK(std::frexp(scale, &exponent) == 0.5f);
  std::vector<std::uint16_t> rounded(values.size());
  narrow(Element::fp16, scale, values, rounded.data());
  std::vector<float> widened(values.size());
  widen(Element::fp16, scale, rounded.data(), widened);

  CHECK(scale_for(Element::fp16, widened) == scale);
  CHECK(widened[1] == Approx(-largest).epsilon(largest < 1e-37f ? 0.5 : 0.0005));
  CHECK(widened[4] == INFINITY);
  CHECK(std::isnan(widened[5]));
  CHECK(scale_for(Element::bf16, values) == 1);
  CHECK(scale_for(Element::fp16, std::vector<float>{0, INFINITY}) == 1);
}
