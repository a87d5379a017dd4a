#include "allreduce/ring/sum_kernels.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "allreduce/ring/wide_target.hpp"

// The loops are written once, inlined into one function for each instruction set, and vectorised
// there; which one runs is asked of the CPU.
namespace ringtrain::allreduce {
namespace {

[[gnu::always_inline]] inline void add_loop(float* __restrict y, const float* __restrict x,
                                            std::size_t count) {
#pragma omp simd
  for (std::size_t i = 0; i < count; ++i) y[i] += x[i];
}

[[gnu::always_inline]] inline void sum_loop(float* __restrict y, const float* __restrict a,
                                            const float* __restrict b, std::size_t count) {
#pragma omp simd
  for (std::size_t i = 0; i < count; ++i) y[i] = a[i] + b[i];
}

// All of a few replicas at once, for all of them: nothing but the loads and stores there must be.
template <int... k>
[[gnu::always_inline]] inline void everyone_loop(const Replicas& replicas, Range slice, int start,
                                                 std::integer_sequence<int, k...>) {
  constexpr int n = sizeof...(k);
  float* const x[n] = {replicas.of((start + k) % n) + slice.first...};
#pragma omp simd
  for (std::size_t i = 0; i < slice.count; ++i) {
    const float sum = (... + x[k][i]);
    ((x[k][i] = sum), ...);
  }
}

[[gnu::always_inline]] inline void replicas_loop(const Replicas& replicas, Range slice, int start,
                                                 Range to) {
  const int n = replicas.count;
  const bool everyone = to.count == static_cast<std::size_t>(n);
  if (everyone && n == 2)
    return everyone_loop(replicas, slice, start, std::make_integer_sequence<int, 2>());
  if (everyone && n == 4)
    return everyone_loop(replicas, slice, start, std::make_integer_sequence<int, 4>());
  if (everyone && n == 8)
    return everyone_loop(replicas, slice, start, std::make_integer_sequence<int, 8>());
  // Every value is read from memory once and written once a target: the running sum stays in L1.
  constexpr std::size_t block = 1024;
  alignas(64) std::array<float, block> total;
  for (std::size_t at = slice.first; at < slice.end(); at += block) {
    const std::size_t count = std::min(block, slice.end() - at);
    sum_loop(total.data(), replicas.of(start) + at, replicas.of((start + 1) % n) + at, count);
    for (int step = 2; step < n; ++step)
      add_loop(total.data(), replicas.of((start + step) % n) + at, count);
    for (std::size_t rank = to.first; rank < to.end(); ++rank)
      std::copy_n(total.data(), count, replicas.of(static_cast<int>(rank)) + at);
  }
}

void add_plain(float* y, const float* x, std::size_t count) { add_loop(y, x, count); }
void replicas_plain(const Replicas& replicas, Range slice, int start, Range to) {
  replicas_loop(replicas, slice, start, to);
}

#if defined(__x86_64__)
[[gnu::target("avx2")]] void add_avx2(float* y, const float* x, std::size_t count) {
  add_loop(y, x, count);
}
[[gnu::target("avx2")]] void replicas_avx2(const Replicas& replicas, Range slice, int start,
                                           Range to) {
  replicas_loop(replicas, slice, start, to);
}
RINGTRAIN_WIDE_TARGET("avx512f") void add_avx512(float* y, const float* x, std::size_t count) {
  add_loop(y, x, count);
}
RINGTRAIN_WIDE_TARGET("avx512f")
void replicas_avx512(const Replicas& replicas, Range slice, int start, Range to) {
  replicas_loop(replicas, slice, start, to);
}

#endif

const Kernels& best_kernels() {
  static const Kernels best = usable_kernels().front();
  return best;
}

}  // namespace

std::vector<Kernels> usable_kernels() {
  std::vector<Kernels> usable;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) usable.push_back({"avx512", add_avx512, replicas_avx512});
  if (__builtin_cpu_supports("avx2")) usable.push_back({"avx2", add_avx2, replicas_avx2});
#endif
  usable.push_back({"plain", add_plain, replicas_plain});
  return usable;
}

void add(std::span<float> y, std::span<const float> x) {
  best_kernels().add(y.data(), x.data(), y.size());
}

void sum_replicas(const Replicas& replicas, Range slice, int start, Range to) {
  if (replicas.count > 1) best_kernels().sum_replicas(replicas, slice, start, to);
}

}  // namespace ringtrain::allreduce
