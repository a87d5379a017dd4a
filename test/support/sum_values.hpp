#pragma once
#include <cstdint>
#include <cstring>
#include <vector>

#include "ringtrain/base/philox.hpp"

namespace ringtrain {

/// Integers small enough that their sum over 16 ranks is exact in any order.
inline float exact_value(std::size_t i, int rank) {
  return static_cast<float>((i * 7 + 3) % 1000 * (static_cast<std::size_t>(rank) + 1));
}
inline std::vector<float> exact_values(std::size_t count, int rank) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = exact_value(i, rank);
  return values;
}
inline std::vector<float> exact_sums(std::size_t count, int ranks) {
  std::vector<float> sums(count);
  for (std::size_t i = 0; i < count; ++i)
    sums[i] = exact_value(i, 0) * static_cast<float>(ranks * (ranks + 1) / 2);
  return sums;
}

/// Values of many magnitudes: another order of additions gives other bits.
inline std::vector<float> rough_values(std::size_t count, int rank, int round = 0) {
  Philox random(static_cast<std::uint64_t>(rank), Purpose::synthetic,
                static_cast<std::uint32_t>(round));
  std::vector<float> values(count);
  for (float& value : values)
    value = random.uniform(-1, 1) * static_cast<float>(1 << random.below(20));
  return values;
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

}  // namespace ringtrain
