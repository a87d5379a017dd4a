#pragma once
#include <bit>
#include <cstdint>

namespace ringtrain {

/// The bits of `x` as a bf16 number, to the nearest, ties to even; NaN stays one.
[[gnu::always_inline]] constexpr std::uint16_t bf16_bits(float x) {
  const auto a = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t nearest = (a + 0x7fff + (a >> 16 & 1)) >> 16;
  return static_cast<std::uint16_t>((a & 0x7fff'ffff) > 0x7f80'0000 ? (a >> 16 | 0x40) : nearest);
}

/// The number that has these bits in bf16, exactly.
[[gnu::always_inline]] constexpr float float_of_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// A bf16 number in memory: the upper half of an fp32 one.
struct Bf16 {
  std::uint16_t bits;

  Bf16() = default;
  constexpr Bf16(float x) : bits(bf16_bits(x)) {}
  constexpr operator float() const { return float_of_bf16(bits); }
};

}  // namespace ringtrain
