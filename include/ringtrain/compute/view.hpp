#pragma once
#include <cstddef>
#include <span>

#include "ringtrain/base/error.hpp"

namespace ringtrain {

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

}  // namespace ringtrain
