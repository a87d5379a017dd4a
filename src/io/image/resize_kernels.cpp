#include <algorithm>
#include <span>

#include "io/image/resize.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

// The loops are inlined into one function for each instruction set, and vectorised there.
namespace ringtrain::io {
namespace {

constexpr int channels = 3;
constexpr std::int32_t half = 1 << (AxisFilter::fraction_bits - 1);

[[gnu::always_inline]] inline void round_loop(const std::int32_t* __restrict sums,
                                              std::uint8_t* __restrict out, std::size_t count) {
#pragma omp simd
  for (std::size_t i = 0; i < count; ++i)
    out[i] = static_cast<std::uint8_t>(
        std::clamp((sums[i] + half) >> AxisFilter::fraction_bits, 0, 255));
}

// The loops run along the row, where neither pixels nor channels matter and vectors fit.
[[gnu::always_inline]] inline void down_loop(const WeightedRows& rows,
                                             std::int32_t* __restrict sums,
                                             std::uint8_t* __restrict out) {
  const std::size_t width = rows.width;
  std::fill_n(sums, width, 0);
  for (int k = 0; k < rows.count; ++k) {
    const std::uint8_t* row = rows.first + k * width;
    const std::int32_t weight = rows.weights[k];
#pragma omp simd
    for (std::size_t i = 0; i < width; ++i) sums[i] += weight * row[i];
  }
  round_loop(sums, out, width);
}

void one_across(const AxisFilter& filter, const std::uint8_t* row, std::int32_t* sums,
                std::uint8_t* out) {
  const std::int32_t* weight = filter.weights.data();
  std::int32_t* sum = sums;
  for (const int first : filter.first) {
    const std::uint8_t* pixel = row + std::size_t(first) * channels;
    std::int32_t red = 0, green = 0, blue = 0;
    for (int k = 0; k < filter.taps; ++k, pixel += channels, ++weight) {
      red += *weight * pixel[0];
      green += *weight * pixel[1];
      blue += *weight * pixel[2];
    }
    *sum++ = red;
    *sum++ = green;
    *sum++ = blue;
  }
  round_loop(sums, out, filter.first.size() * channels);
}

void across_anywhere(const AxisFilter& filter, const std::uint8_t* row, std::size_t next,
                     std::int32_t* sums, std::uint8_t* out) {
  one_across(filter, row, sums, out);
  one_across(filter, row + next, sums, out + filter.first.size() * channels);
}

void down_anywhere(const WeightedRows& rows, std::int32_t* sums, std::uint8_t* out) {
  down_loop(rows, sums, out);
}

#if defined(__x86_64__)
[[gnu::target("avx2"), gnu::always_inline]] inline __m256i weighted(__m256i weights,
                                                                    const std::uint8_t* pixels) {
  return _mm256_mullo_epi32(weights, _mm256_cvtepu8_epi32(_mm_loadu_si64(pixels)));
}

// Of the sum of two pixels' numbers four are stored; the next output goes over the fourth.
[[gnu::target("avx2"), gnu::always_inline]] inline void store_sum(__m256i two, std::int32_t* sum) {
  const __m256i second_pixel = _mm256_setr_epi32(3, 4, 5, 5, 5, 5, 5, 5);
  const __m256i both = _mm256_add_epi32(two, _mm256_permutevar8x32_epi32(two, second_pixel));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(sum), _mm256_castsi256_si128(both));
}

// Two pixels at a time, six numbers of eight, of two rows that share their weights.
[[gnu::target("avx2"), gnu::always_inline]] inline void across_loop(
    std::span<const int> firsts, const std::int32_t* weight, int taps, const std::uint8_t* row,
    std::size_t next, std::int32_t* sums) {
  const __m256i each_weight = _mm256_setr_epi32(0, 0, 0, 1, 1, 1, 1, 1);
  std::int32_t* const other_sums = sums + firsts.size() * channels + 1;
  std::ptrdiff_t at = 0;
  for (const int first : firsts) {
    const std::uint8_t* pixel = row + std::size_t(first) * channels;
    __m256i upper = _mm256_setzero_si256(), lower = _mm256_setzero_si256();
    for (int k = 0; k < taps; k += 2, pixel += 2 * channels, weight += 2) {
      const __m256i weights = _mm256_permutevar8x32_epi32(
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weight)), each_weight);
      upper = _mm256_add_epi32(upper, weighted(weights, pixel));
      lower = _mm256_add_epi32(lower, weighted(weights, pixel + next));
    }
    store_sum(upper, sums + at);
    store_sum(lower, other_sums + at);
    at += channels;
  }
}

// The usual numbers of taps have a loop of their own, without the inner one.
[[gnu::target("avx2")]] void across_avx2(const AxisFilter& filter, const std::uint8_t* row,
                                         std::size_t next, std::int32_t* sums, std::uint8_t* out) {
  const std::int32_t* weights = filter.weights.data();
  if (filter.taps == 2)
    across_loop(filter.first, weights, 2, row, next, sums);
  else if (filter.taps == 4)
    across_loop(filter.first, weights, 4, row, next, sums);
  else
    across_loop(filter.first, weights, filter.taps, row, next, sums);
  const std::size_t values = filter.first.size() * channels;
  round_loop(sums, out, values);
  round_loop(sums + values + 1, out + values, values);
}

[[gnu::target("avx2")]] void down_avx2(const WeightedRows& rows, std::int32_t* sums,
                                       std::uint8_t* out) {
  down_loop(rows, sums, out);
}
#endif

}  // namespace

std::vector<RowKernels> usable_row_kernels() {
  std::vector<RowKernels> usable;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) usable.push_back({"avx2", 2, across_avx2, down_avx2});
#endif
  usable.push_back(plain_row_kernels());
  return usable;
}

RowKernels plain_row_kernels() { return {"plain", 1, across_anywhere, down_anywhere}; }

}  // namespace ringtrain::io
