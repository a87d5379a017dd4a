#include "allreduce/products.hpp"

#include <array>

// As in add.cpp, the loops are written once and compiled for each instruction set. None of these
// has fused multiply-add, which would round otherwise.
namespace ringtrain {
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

[[gnu::always_inline]] inline void add_scaled_loop(float* __restrict y, const float* __restrict x,
                                                   float factor, std::size_t count) {
#pragma omp simd
  for (std::size_t i = 0; i < count; ++i) y[i] += factor * x[i];
}

float dot_plain(const float* a, const float* b, std::size_t count) { return dot_loop(a, b, count); }
void add_scaled_plain(float* y, const float* x, float factor, std::size_t count) {
  add_scaled_loop(y, x, factor, count);
}

#if defined(__x86_64__)
[[gnu::target("avx2")]] float dot_avx2(const float* a, const float* b, std::size_t count) {
  return dot_loop(a, b, count);
}
[[gnu::target("avx2")]] void add_scaled_avx2(float* y, const float* x, float factor,
                                             std::size_t count) {
  add_scaled_loop(y, x, factor, count);
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
  if (__builtin_cpu_supports("avx2")) usable.push_back({"avx2", dot_avx2, add_scaled_avx2});
#endif
  usable.push_back({"plain", dot_plain, add_scaled_plain});
  return usable;
}

float dot(std::span<const float> a, std::span<const float> b) {
  return best_kernels().dot(a.data(), b.data(), a.size());
}

void add_scaled(std::span<float> y, std::span<const float> x, float factor) {
  best_kernels().add_scaled(y.data(), x.data(), factor, y.size());
}

}  // namespace ringtrain
