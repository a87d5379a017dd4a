#pragma once
#include <algorithm>
#include <bit>
#include <climits>
#include <vector>

#include "compute/onednn/tensor.hpp"

namespace ringtrain::compute::onednn::depthwise {

/// How kernels hold rows of a tensor: in fp32, with pixels of zeros beside them.
struct HeldRows {
  int height, width;    ///< of an image of the tensor
  int left, right;      ///< zeros
  int count = INT_MAX;  ///< rows that are held at once, a power of 2; of a tensor itself all

  int pitch() const { return left + width + right; }  ///< pixels
  /// Whether memory has the rows of `t` so already.
  bool lie_in(const Tensor& t) const {
    return left == 0 && right == 0 && t.element == Element::fp32 && !t.channels_last;
  }
  /// Of a copy of so many rows and of one of zeros, rounded up to whole cache lines.
  std::size_t floats(const Tensor& t) const {
    return ((lie_in(t) ? 1 : count + 1) * std::size_t(pitch()) * t.block + 15) / 16 * 16;
  }
};

/// Those that a window meets on its way along `results` pixels.
inline HeldRows rows_under(const Window& w, const Shape& source, int results) {
  const int reach = (results - 1) * w.stride_x + w.width - w.left;
  return {source.height, source.width, w.left, std::max(0, reach - source.width)};
}

/// Results in a row that are sums over the same taps: of a forward step all, of an input gradient
/// those of one phase. For result t, tap i is pixel t * step + shift + i of a held row.
struct Line {
  int first, apart, results;  ///< pixels of the first result, and from one to the next
  int taps, shift;
  int column, column_step;  ///< of the filter: of tap 0, and from one to the next
};

/// The rows of a filter that meet a row of results, `count` of them, and where.
struct Rows {
  int first, step, count;  ///< of the filter
  int source, source_step;

  int least_source() const { return std::min(source, source + (count - 1) * source_step); }
  int most_source() const { return std::max(source, source + (count - 1) * source_step); }
};

inline int divided_up(int value, int divisor) { return (value + divisor - 1) / divisor; }

/// How results follow from the rows of a source: those of a window that slides over it, or, where
/// `back`, the gradients of what a window slid over.
class Sliding {
 public:
  static Sliding forward(const Window& w, const Shape& x, const Shape& y) {
    Sliding s(w, false, rows_under(w, x, y.width), y);
    s.lines_.push_back({0, 1, y.width, w.width, 0, 0, 1});
    s.hold(w.height);
    return s;
  }
  static Sliding back(const Window& w, const Shape& dy, const Shape& dx) {
    Sliding s(w, true, {dy.height, dy.width, 0, 0}, dx);
    for (int first = 0; first < std::min(w.stride_x, dx.width); ++first) s.add_phase(first);
    for (Line& line : s.lines_) line.shift += s.source_.left;
    s.hold(divided_up(w.height, w.stride_y));
    return s;
  }

  /// Pixels of the source from one result of a line to the next.
  int step() const { return back_ ? 1 : window_.stride_x; }
  int columns() const { return window_.width; }
  const HeldRows& source() const { return source_; }
  int height() const { return height_; }  ///< rows of results
  int width() const { return width_; }
  const std::vector<Line>& lines() const { return lines_; }
  Rows rows_of(int row) const { return back_ ? gradient_rows(row) : forward_rows(row); }

 private:
  Sliding(const Window& w, bool back, HeldRows source, const Shape& results)
      : window_(w), back_(back), source_(source), height_(results.height), width_(results.width) {}

  // Of an input gradient: pixels first, first + stride, ... The last of its columns meets the first
  // pixel.
  void add_phase(int first) {
    const Window& w = window_;
    const int least = (first + w.left) % w.stride_x,
              taps = std::max(0, divided_up(w.width - least, w.stride_x)),
              column = least + (taps - 1) * w.stride_x,
              results = divided_up(width_ - first, w.stride_x);
    const int shift = (first + w.left - least) / w.stride_x - (taps - 1);
    lines_.push_back({first, w.stride_x, results, taps, shift, column, -w.stride_x});
    source_.left = std::max(source_.left, -shift);
    source_.right = std::max(source_.right, shift + taps - 1 + results - source_.width);
  }
  void hold(int rows) { source_.count = static_cast<int>(std::bit_ceil(unsigned(rows))); }

  Rows forward_rows(int row) const {
    const int top = row * window_.stride_y - window_.top, first = std::max(0, -top),
              end = std::min(window_.height, source_.height - top);
    return {first, 1, std::max(0, end - first), top + first, 1};
  }
  Rows gradient_rows(int row) const {
    const int stride = window_.stride_y, at = row + window_.top;
    int first = at % stride;  // meets row (at - first) / stride of dy, the next one the row above
    if (const int below = (at - first) / stride - (source_.height - 1); below > 0)
      first += below * stride;
    const int meets = (at - first) / stride;
    const int count = first >= window_.height ? 0 : (window_.height - 1 - first) / stride + 1;
    return {first, stride, std::max(0, std::min(count, meets + 1)), meets, -1};
  }

  Window window_;
  bool back_;
  HeldRows source_;
  int height_, width_;
  std::vector<Line> lines_;
};

/// How the gradients of filters follow from x and dy: by bands of rows of dy, which the first cache
/// holds with those of x.
struct Correlation {
  Window window;
  HeldRows x, dy;
  int band;  ///< rows of dy
  bool bias;

  Correlation(const Window& w, const Shape& of_x, const Shape& of_dy, int block, bool with_bias)
      : window(w),
        x(rows_under(w, of_x, of_dy.width)),
        dy{of_dy.height, of_dy.width, 0, 0},
        bias(with_bias) {
    const int fit = first_cache / (int(sizeof(float)) * block) - w.height * x.pitch();
    band = std::clamp(fit / (w.stride_y * x.pitch() + dy.pitch()), 1, of_dy.height);
    x.count = static_cast<int>(std::bit_ceil(unsigned((band - 1) * w.stride_y + w.height)));
    dy.count = static_cast<int>(std::bit_ceil(unsigned(band)));
  }

 private:
  static constexpr int first_cache = 24 << 10;  // bytes that are ours
};

}  // namespace ringtrain::compute::onednn::depthwise
