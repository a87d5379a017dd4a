#include "allreduce/largest.hpp"

#include <array>
#include <bit>
#include <limits>
#include <utility>

#include "ringtrain/base/error.hpp"

namespace ringtrain {
namespace {

// Ordered as the sizes are, NaN behind infinity.
std::uint32_t size_bits(float value) { return std::bit_cast<std::uint32_t>(value) & 0x7fffffffu; }

// The bits of the count-th largest, found from the highest digit to the lowest, and how many as
// large as that are among the first `count`.
struct Threshold {
  std::uint32_t bits = 0;
  std::size_t equal = 0;
};

Threshold threshold_of(std::span<const float> values, std::size_t count) {
  Threshold found{0, count};
  std::uint32_t known = 0;  // mask of the digits found
  for (const auto& [shift, digit] : {std::pair{20, 0x7ffu}, {10, 0x3ffu}, {0, 0x3ffu}}) {
    std::array<std::size_t, 0x800> with{};
    for (const float value : values)
      if ((size_bits(value) & known) == found.bits) ++with[size_bits(value) >> shift & digit];
    std::uint32_t d = digit;
    for (; with[d] < found.equal; --d) found.equal -= with[d];
    found.bits |= d << shift;
    known |= digit << shift;
  }
  return found;
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
