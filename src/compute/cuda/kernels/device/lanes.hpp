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

#ifdef __CUDA_ARCH__
/// What one access takes, of so many bytes or a part of them.
template <std::size_t bytes>
using AccessBits = std::conditional_t<
    bytes % 16 == 0, uint4,
    std::conditional_t<
        bytes % 8 == 0, uint2,
        std::conditional_t<bytes % 4 == 0, unsigned,
                           std::conditional_t<bytes % 2 == 0, unsigned short, unsigned char>>>>;
#endif

/// `width` numbers that one thread handles together, in fp32.
template <int width>
struct Lanes {
  float at[width];
  constexpr float& operator[](int i) { return at[i]; }
  constexpr float operator[](int i) const { return at[i]; }
};

/// The alignment that an access to so many bytes wants: 16 bytes are the most at once.
constexpr std::size_t access_alignment(std::size_t bytes) { return bytes < 16 ? bytes : 16; }

/// As many elements as are read or written together, 16 bytes an access.
template <class T, int width>
struct alignas(access_alignment(sizeof(T) * width)) Pack {
  T at[width];
};

/// By value: nvcc 13 reads a pack behind a reference element by element.
template <class T, int width>
constexpr Lanes<width> widened(const Pack<T, width> pack) {
  Lanes<width> lanes{};
  for (int i = 0; i < width; ++i) lanes[i] = static_cast<float>(pack.at[i]);
  return lanes;
}

/// Reads `width` elements; `from` is aligned as a Pack of them.
template <int width, class T>
constexpr Lanes<width> load(const T* from) {
  const auto pack = *reinterpret_cast<const Pack<T, width>*>(from);
  return widened(pack);
}

/// Reads elements of a buffer that nothing writes while the kernel runs. A GPU takes them through
/// its read-only path, and its compiler may move the access before stores. Of __restrict__ on the
/// pointers in a kernel's object nvcc 13 makes nothing. It unrolls loops with this access less.
template <int width, class T>
constexpr Pack<T, width> get_constant(const T* from) {
#ifdef __CUDA_ARCH__
  using Bits = AccessBits<sizeof(Pack<T, width>)>;
  constexpr int count = sizeof(Pack<T, width>) / sizeof(Bits);
  Bits bits[count];
  for (int i = 0; i < count; ++i) bits[i] = __ldg(reinterpret_cast<const Bits*>(from) + i);
  Pack<T, width> pack;
  memcpy(&pack, bits, sizeof pack);
  return pack;
#else
  return *reinterpret_cast<const Pack<T, width>*>(from);
#endif
}
template <int width, class T>
constexpr Lanes<width> load_constant(const T* from) {
  const auto pack = get_constant<width>(from);
  return widened(pack);
}

/// Reads one vector of channels' numbers, which nothing writes while the kernel runs, or
/// `otherwise` where there are none. They begin anywhere.
template <int width, class Number>
constexpr Lanes<width> load_or(const Number* vector, std::uint32_t first, float otherwise) {
  if (vector && width % 4 == 0 && reinterpret_cast<std::uintptr_t>(vector + first) % 16 == 0)
    return load_constant<width>(vector + first);
  Lanes<width> lanes{};
  for (int i = 0; i < width; ++i) lanes[i] = vector ? vector[first + i] : otherwise;
  return lanes;
}

/// Rounds to T and writes; `to` is aligned as a Pack of `width` elements.
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

/// Calls f(index, count) for the elements of vector `item` of a buffer: `width` at once, or, of the
/// last vector, one after the other. `count` is a std::integral_constant.
template <int width, class F>
constexpr void for_vector(std::uint32_t item, std::size_t count, F f) {
  const std::size_t first = std::size_t(item) * width;
  const std::integral_constant<int, 1> one;
  if constexpr (width == 1) {
    f(first, one);
  } else if (first + width <= count) {
    f(first, std::integral_constant<int, width>{});
  } else {
#ifdef __CUDA_ARCH__
#pragma unroll 1
#endif
    for (std::size_t i = first; i < count; ++i) f(i, one);
  }
}

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
