#pragma once
#include <cstdint>

#include "ringtrain/compute/element.hpp"
#include "ringtrain/compute/view.hpp"

namespace ringtrain {

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
