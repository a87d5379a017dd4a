#include "ringtrain/base/philox.hpp"

#include <cmath>
#include <numbers>

#include "ringtrain/base/error.hpp"

namespace ringtrain {
namespace {

constexpr std::uint32_t most_a = 1u << 24;

struct HighLow {
  std::uint32_t high, low;
};

HighLow multiply(std::uint32_t a, std::uint32_t b) {
  const std::uint64_t product = static_cast<std::uint64_t>(a) * b;
  return {static_cast<std::uint32_t>(product >> 32), static_cast<std::uint32_t>(product)};
}

}  // namespace

Philox::Philox(std::uint64_t seed, Purpose purpose, std::uint32_t a, std::uint64_t b)
    : key_{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)},
      counter_{(static_cast<std::uint32_t>(purpose) << 24) ^ a, static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(b >> 32)} {
  expects(a < most_a, "Philox: a below 2^24, where the purpose begins");
}

Philox::Block Philox::at(std::uint32_t position) const {
  Block x{position, counter_[0], counter_[1], counter_[2]};
  std::uint32_t k0 = key_[0], k1 = key_[1];
  for (int round = 0; round < 10; ++round) {
    const HighLow p = multiply(0xD2511F53u, x[0]), q = multiply(0xCD9E8D57u, x[2]);
    x = {q.high ^ x[1] ^ k0, q.low, p.high ^ x[3] ^ k1, p.low};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return x;
}

std::uint32_t Philox::next() {
  if (used_ == 4) {
    block_ = at(position_++);
    used_ = 0;
  }
  return block_[used_++];
}

float Philox::uniform() { return static_cast<float>(next() >> 8) * 0x1p-24f; }

// Lemire's method: the high half of a product is uniform once the few biased low halves are
// redrawn.
std::uint32_t Philox::below(std::uint32_t bound) {
  HighLow drawn = multiply(next(), bound);
  const std::uint32_t biased = (0u - bound) % bound;
  while (drawn.low < biased) drawn = multiply(next(), bound);
  return drawn.high;
}

double Philox::normal() {
  const double u = (next() + 0.5) * 0x1p-32, v = (next() + 0.5) * 0x1p-32;
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

}  // namespace ringtrain
