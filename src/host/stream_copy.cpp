#include "ringtrain/host/stream_copy.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "ringtrain/base/error.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ringtrain::host {
namespace {

void copy_plainly(const float* from, float* to, std::size_t count) { std::copy_n(from, count, to); }

#if defined(__x86_64__)
constexpr std::size_t lane = 16;

[[gnu::target("avx512f")]] void copy_avx512(const float* from, float* to, std::size_t count) {
  const std::size_t off = reinterpret_cast<std::uintptr_t>(to) / sizeof(float) % lane;
  std::size_t i = std::min(count, (lane - off) % lane);
  std::copy_n(from, i, to);
  for (; i + lane <= count; i += lane) _mm512_stream_ps(to + i, _mm512_loadu_ps(from + i));
  std::copy_n(from + i, count - i, to + i);
  _mm_sfence();  // before whoever is told that the copy is there
}

auto* best_copy() { return __builtin_cpu_supports("avx512f") ? copy_avx512 : copy_plainly; }
#else
auto* best_copy() { return copy_plainly; }
#endif

}  // namespace

void stream_copy(std::span<const float> from, std::span<float> to) {
  expects(from.size() == to.size(), "stream_copy: as many numbers");
  constexpr std::size_t piece = std::size_t{1} << 16;
  const auto copy = best_copy();
  const std::size_t pieces = (from.size() + piece - 1) / piece;
#pragma omp parallel for schedule(static) if (pieces > 1)
  for (std::size_t p = 0; p < pieces; ++p)
    copy(from.data() + p * piece, to.data() + p * piece, std::min(piece, from.size() - p * piece));
}

}  // namespace ringtrain::host
