#include "allreduce/ring/half_codec.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "allreduce/ring/wide_target.hpp"
#include "ringtrain/base/memory/view.hpp"

// As in sum_kernels.cpp, the loops are written once and compiled for each instruction set. They
// have no branches, so that they become vectors.
namespace ringtrain::allreduce {
namespace {

constexpr std::uint32_t sign = 0x8000'0000, infinity = 0x7f80'0000;

[[gnu::always_inline]] inline std::uint32_t bits(float x) {
  return std::bit_cast<std::uint32_t>(x);
}
[[gnu::always_inline]] inline float number(std::uint32_t x) { return std::bit_cast<float>(x); }

[[gnu::always_inline]] inline std::uint16_t fp16_of(float x) {
  const std::uint32_t a = bits(x) & ~sign;
  // Below fp16's normal numbers: 1/2 has the distance between its neighbours that fp16 has there.
  const std::uint32_t small = bits(number(a) + 0.5f) - bits(0.5f);
  const std::uint32_t normal = (a - bits(0x1p-14f) + (1u << 23) + 0xfff + (a >> 13 & 1)) >> 13;
  const std::uint32_t large = a > infinity ? 0x7e00 : 0x7c00;
  const std::uint32_t rounded = a >= bits(65536.f) ? large : a < bits(0x1p-14f) ? small : normal;
  return static_cast<std::uint16_t>(rounded | (bits(x) >> 16 & 0x8000));
}

[[gnu::always_inline]] inline float number_of_fp16(std::uint16_t h) {
  const std::uint32_t a = h & 0x7fff;
  const std::uint32_t small = bits(static_cast<float>(a) * 0x1p-24f);
  const std::uint32_t normal = (a << 13) + (bits(0x1p-14f) - (1u << 23));
  const std::uint32_t large = (a << 13) | infinity;
  const std::uint32_t wide = a >= 0x7c00 ? large : a < 0x400 ? small : normal;
  return number(wide | (static_cast<std::uint32_t>(h & 0x8000) << 16));
}

[[gnu::always_inline]] inline std::uint32_t largest_loop(const float* __restrict values,
                                                         std::size_t count) {
  std::uint32_t largest = 0;
#pragma omp simd reduction(max : largest)
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t a = bits(values[i]) & ~sign;
    largest = std::max(largest, a < infinity ? a : 0);
  }
  return largest;
}

[[gnu::always_inline]] inline void narrow_loop(Element element, float scale,
                                               const float* __restrict values,
                                               std::uint16_t* __restrict rounded,
                                               std::size_t count) {
  if (element == Element::fp16) {  // NOLINT(bugprone-branch-clone): it reads the pragmas alone
#pragma omp simd
    for (std::size_t i = 0; i < count; ++i) rounded[i] = fp16_of(scale * values[i]);
  } else {
#pragma omp simd
    for (std::size_t i = 0; i < count; ++i) rounded[i] = bf16_bits(scale * values[i]);
  }
}

[[gnu::always_inline]] inline void widen_loop(Element element, float factor,
                                              const std::uint16_t* __restrict rounded,
                                              float* __restrict values, std::size_t count) {
  if (element == Element::fp16) {  // NOLINT(bugprone-branch-clone): it reads the pragmas alone
#pragma omp simd
    for (std::size_t i = 0; i < count; ++i) values[i] = factor * number_of_fp16(rounded[i]);
  } else {
#pragma omp simd
    for (std::size_t i = 0; i < count; ++i) values[i] = factor * float_of_bf16(rounded[i]);
  }
}

std::uint32_t largest_plain(const float* values, std::size_t count) {
  return largest_loop(values, count);
}
void narrow_plain(Element element, float scale, const float* values, std::uint16_t* rounded,
                  std::size_t count) {
  narrow_loop(element, scale, values, rounded, count);
}
void widen_plain(Element element, float factor, const std::uint16_t* rounded, float* values,
                 std::size_t count) {
  widen_loop(element, factor, rounded, values, count);
}

#if defined(__x86_64__)
[[gnu::target("avx2")]] std::uint32_t largest_avx2(const float* values, std::size_t count) {
  return largest_loop(values, count);
}
[[gnu::target("avx2")]] void narrow_avx2(Element element, float scale, const float* values,
                                         std::uint16_t* rounded, std::size_t count) {
  narrow_loop(element, scale, values, rounded, count);
}
[[gnu::target("avx2")]] void widen_avx2(Element element, float factor, const std::uint16_t* rounded,
                                        float* values, std::size_t count) {
  widen_loop(element, factor, rounded, values, count);
}
RINGTRAIN_WIDE_TARGET("avx512bw,avx512vl")
std::uint32_t largest_avx512(const float* values, std::size_t count) {
  return largest_loop(values, count);
}
RINGTRAIN_WIDE_TARGET("avx512bw,avx512vl")
void narrow_avx512(Element element, float scale, const float* values, std::uint16_t* rounded,
                   std::size_t count) {
  narrow_loop(element, scale, values, rounded, count);
}
RINGTRAIN_WIDE_TARGET("avx512bw,avx512vl")
void widen_avx512(Element element, float factor, const std::uint16_t* rounded, float* values,
                  std::size_t count) {
  widen_loop(element, factor, rounded, values, count);
}
#endif

const NarrowKernels& best_kernels() {
  static const NarrowKernels best = usable_narrow_kernels().front();
  return best;
}

}  // namespace

std::vector<NarrowKernels> usable_narrow_kernels() {
  std::vector<NarrowKernels> usable;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
    usable.push_back({"avx512", largest_avx512, narrow_avx512, widen_avx512});
  if (__builtin_cpu_supports("avx2"))
    usable.push_back({"avx2", largest_avx2, narrow_avx2, widen_avx2});
#endif
  usable.push_back({"plain", largest_plain, narrow_plain, widen_plain});
  return usable;
}

// Of the largest number as fp16 rounds it, or rounding it up would change the scale.
float scale_for(Element element, std::span<const float> values) {
  if (element != Element::fp16) return 1;
  const std::uint32_t largest = best_kernels().largest(values.data(), values.size());
  if (largest == 0) return 1;
  const int exponent =
      std::ilogb(number(std::min(largest + 0xfff + (largest >> 13 & 1), infinity - 1)));
  return std::ldexp(1.f, std::clamp(14 - exponent, -126, 126));
}

void narrow(Element element, float scale, std::span<const float> values, std::uint16_t* rounded) {
  best_kernels().narrow(element, scale, values.data(), rounded, values.size());
}

void widen(Element element, float scale, const std::uint16_t* rounded, std::span<float> values) {
  best_kernels().widen(element, 1 / scale, rounded, values.data(), values.size());
}

}  // namespace ringtrain::allreduce
