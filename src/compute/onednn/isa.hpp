#pragma once
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "ringtrain/base/memory/view.hpp"

namespace ringtrain::compute::onednn {

/// The instruction sets our own kernels are compiled for.
enum class Isa { baseline, avx2, avx512 };

/// What oneDNN uses on this host, so that its kernels and ours agree on the block of channels.
Isa effective_isa();

/// Whether this CPU multiplies bf16 numbers (AVX512_BF16 or AMX), and oneDNN may use it.
bool multiplies_bf16();

/// Whether this CPU multiplies bf16 matrices by AMX, and oneDNN and this process may use it.
bool has_amx_bf16();

/// Whether a vector instruction multiplies more bf16 than fp32 numbers in its time here. With
/// AVX512_FP16, from Sapphire Rapids on, it multiplies half as many: AMX has the fast ones there.
bool has_fast_vector_bf16();

/// Channels that lie beside each other in a blocked activation.
constexpr int block_of(Isa isa) { return isa == Isa::avx512 ? 16 : 8; }

/// One block of channels of one pixel, as one vector.
template <int B>
struct VecOf {
  typedef float Float __attribute__((vector_size(B * sizeof(float))));
  typedef int Int __attribute__((vector_size(B * sizeof(int))));
  typedef std::uint32_t Bits __attribute__((vector_size(B * sizeof(std::uint32_t))));
  typedef std::uint16_t HalfBits __attribute__((vector_size(B * sizeof(std::uint16_t))));
};
template <int B>
using Vec = typename VecOf<B>::Float;
template <int B>
using IntVec = typename VecOf<B>::Int;

// Everything that handles a Vec is always_inline: a call would pass it by another convention than
// the instruction set it is inlined into.
template <int B>
[[gnu::always_inline]] inline Vec<B> load(const float* from) {
  Vec<B> v;
  std::memcpy(&v, from, sizeof v);
  return v;
}
template <int B>
[[gnu::always_inline]] inline void store(float* to, Vec<B> v) {
  std::memcpy(to, &v, sizeof v);
}
template <int B>
[[gnu::always_inline]] inline Vec<B> load(const Bf16* from) {
  typename VecOf<B>::HalfBits narrow;
  std::memcpy(&narrow, from, sizeof narrow);
  const auto wide = __builtin_convertvector(narrow, typename VecOf<B>::Bits) << 16;
  return reinterpret_cast<Vec<B>>(wide);
}
/// Rounds as bf16_bits() does, but with 16 lanes, which AVX512_BF16 rounds, numbers below 2^-126
/// become 0.
template <int B>
[[gnu::always_inline]] inline void store(Bf16* to, Vec<B> v) {
  if constexpr (B == 16) {
    typename VecOf<B>::HalfBits narrow;
    asm("vcvtneps2bf16 %1, %0" : "=v"(narrow) : "v"(v));
    std::memcpy(to, &narrow, sizeof narrow);
    return;
  }
  const auto bits = reinterpret_cast<typename VecOf<B>::Bits>(v);
  const auto nearest = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  const auto narrow =
      __builtin_convertvector(v == v ? nearest : (bits >> 16 | 0x40), typename VecOf<B>::HalfBits);
  std::memcpy(to, &narrow, sizeof narrow);
}
/// store(), past the caches where asked and a vector is a whole line: the CPU then does not read
/// the line before it writes it. Another thread sees such stores after an sfence. `to` begins a
/// line.
template <int B, class T>
[[gnu::always_inline]] inline void store(T* to, Vec<B> v, bool past_caches) {
  if constexpr (B == 16 && std::is_same_v<T, float>)
    if (past_caches) {
      asm volatile("vmovntps %1, %0" : "=m"(*reinterpret_cast<Vec<B>*>(to)) : "v"(v));
      return;
    }
  store<B>(to, v);
}
/// To be called before others read what was stored past the caches.
inline void order_stores() { asm volatile("sfence" : : : "memory"); }
/// max(v, 0), and NaN where v is NaN.
template <int B>
[[gnu::always_inline]] inline Vec<B> relu(Vec<B> v) {
  return v < 0 ? Vec<B>{} : v;
}

/// The variants of one kernel. `Kernel<B, T>::run` is an always_inline static function of serial
/// code on numbers that memory has as T; it becomes code of the instruction set of the variant it
/// is inlined into.
template <template <int, class> class Kernel, class T, class... Arguments>
struct Variants {
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,fma")]] static void avx512(Arguments... a) {
    Kernel<16, T>::run(a...);
  }
  [[gnu::target("avx2,fma")]] static void avx2(Arguments... a) { Kernel<8, T>::run(a...); }
  static void baseline(Arguments... a) { Kernel<8, T>::run(a...); }

  using Function = void (*)(Arguments...);
  static Function pick(Isa isa) {
    return isa == Isa::avx512 ? avx512 : isa == Isa::avx2 ? avx2 : baseline;
  }
};

template <template <int, class> class Kernel, class T, class... Arguments>
Variants<Kernel, T, Arguments...> variants_of(void (*)(Arguments...));

/// The variant of `Kernel` for this instruction set.
template <template <int, class> class Kernel, class T>
auto pick(Isa isa) {
  using Function = decltype(&Kernel<8, T>::run);
  return decltype(variants_of<Kernel, T>(Function{}))::pick(isa);
}

/// f(T{}) with the T in which memory has `element`, which is not fp16.
template <class F>
auto with_type(Element element, const F& f) {
  return element == Element::bf16 ? f(Bf16{}) : f(float{});
}

}  // namespace ringtrain::compute::onednn
