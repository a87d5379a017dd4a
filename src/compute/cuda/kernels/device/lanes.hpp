#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "ringtrain/base/memory/view.hpp"

// What runs on the GPU is written as constexpr templates: nvcc compiles those for both sides
// (--expt-relaxed-constexpr), so that tests run the very same code on the CPU. What calls functions
// that are not constexpr, or reinterprets memory, must be a template.
namespace ringtrain::compute::cuda::kernels {

/// `width` numbers that one thread handles together, in fp32.
template <int width>
struct Lanes {
  float at[width];
  constexpr float& operator[](int i) { return at[i]; }
  constexpr float operator[](int i) const { return at[i]; }
};

/// As many elements as are read or written in one access.
template <class T, int width>
struct alignas(sizeof(T) * width) Pack {
  T at[width];
};

/// Reads `width` elements; `from` is aligned to all of them.
template <int width, class T>
constexpr Lanes<width> load(const T* from) {
  const auto pack = *reinterpret_cast<const Pack<T, width>*>(from);
  Lanes<width> lanes{};
  for (int i = 0; i < width; ++i) lanes[i] = static_cast<float>(pack.at[i]);
  return lanes;
}

/// Rounds to T and writes; `to` is aligned to all `width` elements.
template <int width, class T>
constexpr void store(T* to, const Lanes<width>& lanes) {
  Pack<T, width> pack{};
  for (int i = 0; i < width; ++i) pack.at[i] = static_cast<T>(lanes[i]);
  *reinterpret_cast<Pack<T, width>*>(to) = pack;
}

/// `width` bytes, aligned to all of them.
template <int width, class Byte>
constexpr Pack<std::uint8_t, width> get(const Byte* from) {
  return *reinterpret_cast<const Pack<std::uint8_t, width>*>(from);
}
template <int width, class Byte>
constexpr void put(Byte* to, const Pack<std::uint8_t, width>& pack) {
  *reinterpret_cast<Pack<std::uint8_t, width>*>(to) = pack;
}

/// max(v, 0) that lets through what is no number.
constexpr float rectify(float v) { return v < 0 ? 0 : v; }

/// Calls use(T{}) with the type of `element`.
template <class Use>
void with_type(Element element, Use use) {
  switch (element) {
    case Element::fp32:
      return use(float{});
    case Element::fp16:
      return use(__half{});
    case Element::bf16:
      return use(__nv_bfloat16{});
  }
}

/// The number of T in 16 bytes, the widest access.
template <class T>
inline constexpr int full_width = 16 / sizeof(T);

/// Calls use(T{}, width) with width, a std::integral_constant, 16 bytes' worth or 1.
template <class Use>
void with_type_and_width(Element element, bool wide, Use use) {
  with_type(element, [&]<class T>(T zero) {
    if (wide)
      use(zero, std::integral_constant<int, full_width<T>>{});
    else
      use(zero, std::integral_constant<int, 1>{});
  });
}

}  // namespace ringtrain::compute::cuda::kernels
