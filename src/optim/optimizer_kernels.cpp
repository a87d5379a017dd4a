// Compiled with -ffp-contract=off: a multiply-add fused on one CPU and not on another would let the
// replicas of a model drift apart on hosts that differ.
#include "optim/optimizer_kernels.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace ringtrain::optim::kernels {

[[gnu::target_clones("avx512f", "avx2", "default")]] void sgd(Part part, Factors f) {
  float* __restrict w = part.w;
  const float* __restrict g = part.g;
#pragma omp simd
  for (std::size_t i = 0; i < part.size; ++i) {
    const float d = f.scale * g[i] + f.decay * w[i];
    w[i] -= f.lr * d;
  }
}

[[gnu::target_clones("avx512f", "avx2", "default")]] void momentum(Part part, Factors f) {
  float* __restrict w = part.w, * __restrict m = part.slot0;
  const float* __restrict g = part.g;
#pragma omp simd
  for (std::size_t i = 0; i < part.size; ++i) {
    const float d = f.scale * g[i] + f.decay * w[i];
    m[i] = f.momentum * m[i] + d;
    w[i] -= f.lr * m[i];
  }
}

[[gnu::target_clones("avx512f", "avx2", "default")]] void nesterov(Part part, Factors f) {
  float* __restrict w = part.w, * __restrict m = part.slot0;
  const float* __restrict g = part.g;
#pragma omp simd
  for (std::size_t i = 0; i < part.size; ++i) {
    const float d = f.scale * g[i] + f.decay * w[i];
    m[i] = f.momentum * m[i] + d;
    w[i] -= f.lr * (d + f.momentum * m[i]);
  }
}

// TensorFlow's definition: the rate enters the momentum, epsilon the root.
[[gnu::target_clones("avx512f", "avx2", "default")]] void rmsprop(Part part, Factors f) {
  float* __restrict w = part.w, * __restrict s = part.slot0, * __restrict m = part.slot1;
  const float* __restrict g = part.g;
  const float fresh = 1 - f.mean_square_decay;
#pragma omp simd
  for (std::size_t i = 0; i < part.size; ++i) {
    const float d = f.scale * g[i] + f.decay * w[i];
    s[i] = f.mean_square_decay * s[i] + fresh * (d * d);
    m[i] = f.momentum * m[i] + f.lr * d / std::sqrt(s[i] + f.epsilon);
    w[i] -= m[i];
  }
}

[[gnu::target_clones("avx512f", "avx2", "default")]] void adam(Part part, Factors f) {
  float* __restrict w = part.w, * __restrict m = part.slot0, * __restrict v = part.slot1;
  const float* __restrict g = part.g;
  const float fresh1 = 1 - f.beta1, fresh2 = 1 - f.beta2;
#pragma omp simd
  for (std::size_t i = 0; i < part.size; ++i) {
    const float d = f.scale * g[i] + f.decay * w[i];
    m[i] = f.beta1 * m[i] + fresh1 * d;
    v[i] = f.beta2 * v[i] + fresh2 * (d * d);
    w[i] = f.shrink * w[i] - f.lr * m[i] / (std::sqrt(v[i]) * f.root_scale + f.epsilon);
  }
}

[[gnu::target_clones("avx512f", "avx2", "default")]] void lars(Part part, Factors f) {
  float* __restrict w = part.w, * __restrict m = part.slot0;
  const float* __restrict g = part.g;
#pragma omp simd
  for (std::size_t i = 0; i < part.size; ++i) {
    const float d = f.scale * g[i] + f.decay * w[i];
    m[i] = f.momentum * m[i] + f.lr * d;
    w[i] -= m[i];
  }
}

[[gnu::target_clones("avx512f", "avx2", "default")]] void lion(Part part, Factors f) {
  float* __restrict w = part.w, * __restrict m = part.slot0;
  const float* __restrict g = part.g;
  const float fresh1 = 1 - f.beta1, fresh2 = 1 - f.beta2;
#pragma omp simd
  for (std::size_t i = 0; i < part.size; ++i) {
    const float d = f.scale * g[i];
    const float way = f.beta1 * m[i] + fresh1 * d;
    const float sign = way > 0 ? 1.0f : way < 0 ? -1.0f : 0.0f;
    w[i] = f.shrink * w[i] - f.lr * sign;
    m[i] = f.beta2 * m[i] + fresh2 * d;
  }
}

[[gnu::target_clones("avx512f", "avx2", "default")]] void move_average(float* average,
                                                                       const float* values,
                                                                       std::size_t size,
                                                                       float rate) {
  float* __restrict a = average;
  const float* __restrict v = values;
#pragma omp simd
  for (std::size_t i = 0; i < size; ++i) a[i] += rate * (v[i] - a[i]);
}

[[gnu::target_clones("avx512f", "avx2", "default")]] double sum_of_squares(const float* values,
                                                                           std::size_t size) {
  using Floats [[gnu::vector_size(32)]] = float;
  using Doubles [[gnu::vector_size(64)]] = double;
  constexpr std::size_t lanes = 8;
  Doubles sums[2] = {};
  std::size_t i = 0;
  for (; i + 2 * lanes <= size; i += 2 * lanes) {
    Floats low, high;
    std::memcpy(&low, values + i, sizeof low);
    std::memcpy(&high, values + i + lanes, sizeof high);
    const Doubles a = __builtin_convertvector(low, Doubles);
    const Doubles b = __builtin_convertvector(high, Doubles);
    sums[0] += a * a;
    sums[1] += b * b;
  }
  double total = 0;
  for (; i < size; ++i) total += static_cast<double>(values[i]) * values[i];
  const Doubles both = sums[0] + sums[1];
  for (std::size_t lane = 0; lane < lanes; ++lane) total += both[lane];
  return total;
}

[[gnu::target_clones("avx512f", "avx2", "default")]] bool all_finite(const float* values,
                                                                     std::size_t size) {
  constexpr std::uint32_t exponent = 0x7f800000;
  std::uint32_t bad = 0;
#pragma omp simd reduction(| : bad)
  for (std::size_t i = 0; i < size; ++i)
    bad |= (std::bit_cast<std::uint32_t>(values[i]) & exponent) == exponent;
  return bad == 0;
}

}  // namespace ringtrain::optim::kernels
