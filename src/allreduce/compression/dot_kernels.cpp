#include <array>

#include "allreduce/compression/low_rank.hpp"

// As in sum_kernels.cpp, the loops are written once and compiled for each instruction set; without
// fused multiply-add, which would round otherwise (CMakeLists.txt).
namespace ringtrain::allreduce {
namespace {

constexpr std::size_t width = 32;  // running sums of a dot product

[[gnu::always_inline]] inline float dot_loop(const float* __restrict a, const float* __restrict b,
                                             std::size_t count) {
  alignas(64) std::array<float, width> sums{};
  std::size_t at = 0;
  for (; at + width <= count; at += width) {
#pragma omp simd
    for (std::size_t i = 0; i < width; ++i) sums[i] += a[at + i] * b[at + i];
  }
  for (std::size_t i = 0; at + i < count; ++i) sums[i] += a[at + i] * b[at + i];
  for (std::size_t half = width / 2; half > 0; half /= 2)
    for (std::size_t i = 0; i < half; ++i) sums[i] += sums[half + i];
  return sums[0];
}

// Four at a time: y is loaded and stored once.
[[gnu::always_inline]] inline void add_combination_loop(float* __restrict y, std::size_t count,
                                                        const float* __restrict x,
                                                        std::size_t stride,
                                                        std::span<const float> factors) {
  std::size_t k = 0;
  for (; k + 4 <= factors.size(); k += 4, x += 4 * stride) {
    const float a = factors[k], b = factors[k + 1], c = factors[k + 2], d = factors[k + 3];
#pragma omp simd
    for (std::size_t i = 0; i < count; ++i)
      y[i] = y[i] + a * x[i] + b * x[stride + i] + c * x[2 * stride + i] + d * x[3 * stride + i];
  }
  for (; k < factors.size(); ++k, x += stride) {
    const float a = factors[k];
#pragma omp simd
    for (std::size_t i = 0; i < count; ++i) y[i] += a * x[i];
  }
}

float dot_plain(const float* a, const float* b, std::size_t count) { return dot_loop(a, b, count); }
void add_combination_plain(float* y, std::size_t count, const float* x, std::size_t stride,
                           std::span<const float> factors) {
  add_combination_loop(y, count, x, stride, factors);
}

#if defined(__x86_64__)
[[gnu::target("avx512f,prefer-vector-width=512")]] float dot_avx512(const float* a, const float* b,
                                                                    std::size_t count) {
  return dot_loop(a, b, count);
}
[[gnu::target("avx512f,prefer-vector-width=512")]] void add_combination_avx512(
    float* y, std::size_t count, const float* x, std::size_t stride,
    std::span<const float> factors) {
  add_combination_loop(y, count, x, stride, factors);
}
[[gnu::target("avx2")]] float dot_avx2(const float* a, const float* b, std::size_t count) {
  return dot_loop(a, b, count);
}
[[gnu::target("avx2")]] void add_combination_avx2(float* y, std::size_t count, const float* x,
                                                  std::size_t stride,
                                                  std::span<const float> factors) {
  add_combination_loop(y, count, x, stride, factors);
}
#endif

const ProductKernels& best_kernels() {
  static const ProductKernels best = usable_product_kernels().front();
  return best;
}

}  // namespace

std::vector<ProductKernels> usable_product_kernels() {
  std::vector<ProductKernels> usable;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f"))
    usable.push_back({"avx512f", dot_avx512, add_combination_avx512});
  if (__builtin_cpu_supports("avx2")) usable.push_back({"avx2", dot_avx2, add_combination_avx2});
#endif
  usable.push_back({"plain", dot_plain, add_combination_plain});
  return usable;
}

float dot(std::span<const float> a, std::span<const float> b) {
  return best_kernels().dot(a.data(), b.data(), a.size());
}

void add_combination(std::span<float> y, const float* x, std::size_t stride,
                     std::span<const float> factors) {
  best_kernels().add_combination(y.data(), y.size(), x, stride, factors);
}

}  // namespace ringtrain::allreduce
