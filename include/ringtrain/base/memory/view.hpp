#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "ringtrain/base/error.hpp"

namespace ringtrain {

/// The bits of `x` as a bf16 number, to the nearest, ties to even; NaN stays one.
[[gnu::always_inline]] constexpr std::uint16_t bf16_bits(float x) {
  const auto a = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t nearest = (a + 0x7fff + (a >> 16 & 1)) >> 16;
  return static_cast<std::uint16_t>((a & 0x7fff'ffff) > 0x7f80'0000 ? (a >> 16 | 0x40) : nearest);
}

/// The number that has these bits in bf16, exactly.
[[gnu::always_inline]] constexpr float float_of_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// A bf16 number in memory: the upper half of an fp32 one.
struct Bf16 {
  std::uint16_t bits;

  Bf16() = default;
  constexpr Bf16(float x) : bits(bf16_bits(x)) {}
  constexpr operator float() const { return float_of_bf16(bits); }
};

/// A half-open range of a flat buffer, in elements.
struct Range {
  std::size_t first = 0, count = 0;
  std::size_t end() const { return first + count; }
  friend bool operator==(const Range&, const Range&) = default;
};

/// Part of a flat fp32 buffer in the memory of a backend. Owns nothing; copying it copies no data.
class View {
 public:
  View() = default;
  View(float* data, std::size_t size) : data_(data), size_(size) {}

  float* data() const { return data_; }
  std::size_t size() const { return size_; }
  View slice(std::size_t first, std::size_t count) const {
    expects(first <= size_ && count <= size_ - first, "View::slice: inside the view");
    return {data_ + first, count};
  }
  View slice(Range range) const { return slice(range.first, range.count); }
  /// The values, when the memory is the host's. The caller knows that it is.
  std::span<float> host() const { return {data_, size_}; }

 private:
  float* data_ = nullptr;
  std::size_t size_ = 0;
};

/// How the numbers of activations, and of what flows back through them, are stored. Arithmetic,
/// per-channel vectors and the master copy of weights are fp32 whatever this says.
enum class Element { fp32, fp16, bf16 };

constexpr std::size_t bytes_of(Element element) { return element == Element::fp32 ? 4 : 2; }

/// "fp32", "fp16" or "bf16".
constexpr const char* name_of(Element element) {
  if (element == Element::fp32) return "fp32";
  return element == Element::fp16 ? "fp16" : "bf16";
}

/// Part of a flat buffer of 16-bit numbers in the memory of a backend. Owns nothing; copying it
/// copies no data.
class NarrowView {
 public:
  NarrowView() = default;
  NarrowView(Element element, std::uint16_t* data, std::size_t size)
      : element_(element), data_(data), size_(size) {
    expects(bytes_of(element) == sizeof *data, "NarrowView: of 16-bit numbers");
  }

  Element element() const { return element_; }
  std::uint16_t* data() const { return data_; }
  std::size_t size() const { return size_; }
  NarrowView slice(std::size_t first, std::size_t count) const {
    expects(first <= size_ && count <= size_ - first, "NarrowView::slice: inside the view");
    return {element_, data_ + first, count};
  }

 private:
  Element element_ = Element::fp16;
  std::uint16_t* data_ = nullptr;
  std::size_t size_ = 0;
};

/// To 16 bits and back, in the memory of a backend and in the order of its other work.
class Rounding {
 public:
  virtual ~Rounding() = default;
  /// rounded = factor * values, to the nearest; what is too large becomes infinite. Never waits.
  virtual void round(float factor, View values, NarrowView rounded) = 0;
  /// values = rounded, exactly. Never waits.
  virtual void widen(NarrowView rounded, View values) = 0;
};

}  // namespace ringtrain
