#pragma once
#include <cstring>

namespace ringtrain::onednn {

/// The instruction sets our own kernels are compiled for.
enum class Isa { baseline, avx2, avx512 };

/// What oneDNN uses on this host, so that its kernels and ours agree on the block of channels.
Isa effective_isa();

/// Channels that lie beside each other in a blocked activation.
constexpr int block_of(Isa isa) { return isa == Isa::avx512 ? 16 : 8; }

/// One block of channels of one pixel, as one vector.
template <int B>
struct VecOf {
  typedef float Float __attribute__((vector_size(B * sizeof(float))));
  typedef int Int __attribute__((vector_size(B * sizeof(int))));
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
/// max(v, 0), and NaN where v is NaN.
template <int B>
[[gnu::always_inline]] inline Vec<B> relu(Vec<B> v) {
  return v < 0 ? Vec<B>{} : v;
}

/// The variants of one kernel. `Kernel<B>::run` is an always_inline static function of serial code;
/// it becomes code of the instruction set of the variant it is inlined into.
template <template <int> class Kernel, class... Arguments>
struct Variants {
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,fma")]] static void avx512(Arguments... a) {
    Kernel<16>::run(a...);
  }
  [[gnu::target("avx2,fma")]] static void avx2(Arguments... a) { Kernel<8>::run(a...); }
  static void baseline(Arguments... a) { Kernel<8>::run(a...); }

  using Function = void (*)(Arguments...);
  static Function pick(Isa isa) {
    return isa == Isa::avx512 ? avx512 : isa == Isa::avx2 ? avx2 : baseline;
  }
};

template <template <int> class Kernel, class... Arguments>
Variants<Kernel, Arguments...> variants_of(void (*)(Arguments...));

/// The variant of `Kernel` for this instruction set.
template <template <int> class Kernel>
auto pick(Isa isa) {
  using Function = decltype(&Kernel<8>::run);
  return decltype(variants_of<Kernel>(Function{}))::pick(isa);
}

}  // namespace ringtrain::onednn
