#include "allreduce/compression/largest.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "ringtrain/base/error.hpp"

namespace ringtrain {
namespace {

// Ordered as the sizes are, NaN behind infinity.
std::uint32_t size_bits(float value) { return std::bit_cast<std::uint32_t>(value) & 0x7fffffffu; }

// The bits of the count-th largest, and how many as large as that are among the first `count`.
struct Threshold {
  std::uint32_t bits = 0;
  std::size_t equal = 0;
};

constexpr int low_bits = 20;  // below an exponent and three bits of the number

// How many values have each of the upper bits. Neighbours are often alike, and a counter is slow to
// be raised twice in a row: hence four.
std::array<std::size_t, 0x800> histogram(std::span<const float> values) {
  std::array<std::array<std::uint32_t, 4>, 0x800> counters{};
  for (std::size_t i = 0; i < values.size(); ++i)
    ++counters[size_bits(values[i]) >> low_bits][i % 4];
  std::array<std::size_t, 0x800> counts{};
  for (std::size_t d = 0; d < counts.size(); ++d)
    for (const std::uint32_t counter : counters[d]) counts[d] += counter;
  return counts;
}

Threshold threshold_of(std::span<const float> values, std::size_t count) {
  const auto counts = histogram(values);
  std::size_t upper = counts.size() - 1, left = count;  // to find among those with these upper bits
  for (; counts[upper] < left; --upper) left -= counts[upper];
  std::vector<std::uint32_t> alike;
  alike.reserve(counts[upper]);
  for (const float value : values)
    if (size_bits(value) >> low_bits == upper) alike.push_back(size_bits(value));
  const auto last = alike.begin() + static_cast<std::ptrdiff_t>(left) - 1;
  std::ranges::nth_element(alike, last, std::greater{});
  const auto larger = std::count_if(alike.begin(), last, [&](auto bits) { return bits > *last; });
  return {*last, left - static_cast<std::size_t>(larger)};
}

}  // namespace

void take_largest(std::span<float> values, std::span<PlacedValue> taken) {
  expects(
      taken.size() <= values.size() && values.size() <= std::numeric_limits<std::uint32_t>::max(),
      "take_largest: no more than there are, whose places fit 32 bits");
  if (taken.empty()) return;
  auto [bits, equal] = threshold_of(values, taken.size());
  auto next = taken.begin();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint32_t size = size_bits(values[i]);
    if (size < bits || (size == bits && equal == 0)) continue;
    if (size == bits) --equal;
    *next++ = {static_cast<std::uint32_t>(i), std::exchange(values[i], 0.0f)};
  }
}

}  // namespace ringtrain
