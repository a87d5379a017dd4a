#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "compute/onednn/isa.hpp"

namespace ringtrain::compute::onednn {

/// AMX multiplies tiles of 16 rows of 32 bf16 numbers: channels by pixels here. Its instructions
/// are assembly, as GCC's intrinsics take no template argument as a tile's number.
inline constexpr std::size_t tile_rows = 16, tile_depth = 32;

/// The tiles of a thread, all of full size, while it lives.
class TileConfig {
 public:
  TileConfig() {
    struct alignas(64) {
      std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
      std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } config;
    asm volatile("ldtilecfg %0" ::"m"(config));
  }
  ~TileConfig() { asm volatile("tilerelease"); }
  TileConfig(const TileConfig&) = delete;
  TileConfig& operator=(const TileConfig&) = delete;
};

template <int T>
[[gnu::always_inline]] inline void load_tile(const void* from, std::size_t row_bytes) {
  asm volatile("tileloadd (%1,%2,1), %%tmm%c0" ::"i"(T), "r"(from), "r"(row_bytes) : "memory");
}
template <int T>
[[gnu::always_inline]] inline void store_tile(void* to, std::size_t row_bytes) {
  asm volatile("tilestored %%tmm%c0, (%1,%2,1)" ::"i"(T), "r"(to), "r"(row_bytes) : "memory");
}
template <int T>
[[gnu::always_inline]] inline void clear_tile() {
  asm volatile("tilezero %%tmm%c0" ::"i"(T));
}
template <int C, int A, int B>
[[gnu::always_inline]] inline void multiply_tiles() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(C), "i"(A), "i"(B));
}

/// Runs of pixels that a product sums over: of each, `pixels` (a multiple of tile_depth), and where
/// the next one begins in a row of A.
struct Runs {
  std::size_t count, pixels, a_step, a_row;
};

/// Adds the products of M rows of tiles of A (channels x pixels) and N of B (pairs of pixels x
/// channels x 2) to M x N tiles of fp32, or sets them. At most 4 tiles, two columns.
template <int M, int N>
void multiply(const Bf16* const* a, const Bf16* const* b, const Runs& runs, float* const* c,
              bool first) {
  constexpr std::size_t line = 64;
  constexpr int of_a = 4, of_b = 6;
  const auto each = [](const auto& f) {
    f.template operator()<0, 0>();
    if constexpr (N > 1) f.template operator()<0, 1>();
    if constexpr (M > 1) f.template operator()<1, 0>();
    if constexpr (M > 1 && N > 1) f.template operator()<1, 1>();
    if constexpr (M > 2) f.template operator()<2, 0>();
    if constexpr (M > 3) f.template operator()<3, 0>();
  };
  each([&]<int I, int J>() __attribute__((always_inline)) {
    if (first)
      clear_tile<I * N + J>();
    else
      load_tile<I * N + J>(c[I * N + J], line);
  });
  for (std::size_t run = 0; run < runs.count; ++run)
    for (std::size_t p = 0; p < runs.pixels; p += tile_depth) {
      const std::size_t a_at = run * runs.a_step + p, b_at = (run * runs.pixels + p) * tile_rows;
      load_tile<of_b>(b[0] + b_at, line);
      if constexpr (N > 1) load_tile<of_b + 1>(b[1] + b_at, line);
      each([&]<int I, int J>() __attribute__((always_inline)) {
        if constexpr (J == 0) load_tile<of_a + I % 2>(a[I] + a_at, runs.a_row * sizeof(Bf16));
        multiply_tiles<I * N + J, of_a + I % 2, of_b + J>();
      });
    }
  each([&]<int I, int J>()
           __attribute__((always_inline)) { store_tile<I * N + J>(c[I * N + J], line); });
}

using Words = VecOf<16>::Bits;

/// The words of a and b that `Choice::at(i)` says, counted from 0 in a and from 16 in b.
template <class Choice>
[[gnu::always_inline]] inline Words chosen(Words a, Words b) {
  return [&]<std::size_t... I>(std::index_sequence<I...>) __attribute__((always_inline)) {
    return __builtin_shufflevector(a, b, Choice::at(I)...);
  }
  (std::make_index_sequence<16>());
}
/// Groups of `Width` words of a's and b's halves in turns, in each four words; of those in the
/// lower halves, or in the upper ones.
template <int Width, bool Upper>
struct Interleaved {
  static constexpr int at(int i) {
    const int within = i % 4, group = within / Width;
    return i / 4 * 4 + group % 2 * 16 + group / 2 * Width + within % Width + (Upper ? 2 : 0);
  }
};
/// Every other four words of a, then of b.
template <bool Odd>
struct Halved {
  static constexpr int at(int i) { return i / 8 * 16 + i % 8 / 4 * 8 + (Odd ? 4 : 0) + i % 4; }
};

/// Rows of 16 words become columns.
[[gnu::always_inline]] inline void transpose(Words* rows) {
  Words t[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 2) {
    t[i] = chosen<Interleaved<1, false>>(rows[i], rows[i + 1]);
    t[i + 1] = chosen<Interleaved<1, true>>(rows[i], rows[i + 1]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 4) {
    rows[i] = chosen<Interleaved<2, false>>(t[i], t[i + 2]);
    rows[i + 1] = chosen<Interleaved<2, true>>(t[i], t[i + 2]);
    rows[i + 2] = chosen<Interleaved<2, false>>(t[i + 1], t[i + 3]);
    rows[i + 3] = chosen<Interleaved<2, true>>(t[i + 1], t[i + 3]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 4; ++i) {
    t[i] = chosen<Halved<false>>(rows[i], rows[i + 4]);
    t[i + 4] = chosen<Halved<true>>(rows[i], rows[i + 4]);
    t[i + 8] = chosen<Halved<false>>(rows[i + 8], rows[i + 12]);
    t[i + 12] = chosen<Halved<true>>(rows[i + 8], rows[i + 12]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 8; ++i) {
    rows[i] = chosen<Halved<false>>(t[i], t[i + 8]);
    rows[i + 8] = chosen<Halved<true>>(t[i], t[i + 8]);
  }
}

/// Two pixels of one block of channels, channel by channel.
[[gnu::always_inline]] inline Words pair_of(const Bf16* first, const Bf16* second) {
  const auto wide = [](const Bf16* p) __attribute__((always_inline)) {
    VecOf<16>::HalfBits narrow;
    std::memcpy(&narrow, p, sizeof narrow);
    return __builtin_convertvector(narrow, Words);
  };
  return wide(first) | wide(second) << 16;
}

}  // namespace ringtrain::compute::onednn
