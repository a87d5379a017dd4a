#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "compute/onednn/plan.hpp"

namespace ringtrain::compute::onednn {

/// Whether a filter is one pixel, without padding.
inline bool is_of_one_pixel(const Window& w) {
  return w.height == 1 && w.width == 1 && w.top == 0 && w.left == 0 && w.bottom == 0 &&
         w.right == 0;
}

/// Weights of a filter: those of rows and columns `first + n * step` of `rows` and `columns`.
struct Taps {
  int rows, columns, first_y = 0, first_x = 0, step_y = 1, step_x = 1;

  static Taps all(const Window& w) { return {w.height, w.width}; }
  /// The same, which are `w`'s, from the last to the first.
  Taps turned(const Window& w) const {
    return {rows,    columns, first_y + (w.height - 1) * step_y, first_x + (w.width - 1) * step_x,
            -step_y, -step_x};
  }
  /// Whether `height` x `width` of them are the whole filter in its order.
  bool lie_in_order(std::int64_t height, std::int64_t width) const {
    return rows == height && columns == width && (rows == 1 || step_y == 1) &&
           (columns == 1 || step_x == 1);
  }
};

/// A strided convolution is a sum of dense ones, one a phase: it has the pixels of x in rows and
/// columns `first + n * stride` and the weights that meet them.
struct Phase {
  int first_y, first_x;
  int height, width;  ///< of those pixels
  Window window;      ///< of stride 1
  Taps taps;
};

/// The phases of a convolution from x to y that meet weights; together they are the convolution.
/// Empty where x has fewer pixels than a stride, so that some weights meet none, where results do
/// not reach the last pixels, and where a phase is padded by a whole filter.
inline std::vector<Phase> phases_of(const Window& window, const Shape& x, const Shape& y) {
  struct Line {  // a phase along one axis
    int first, pixels, taps = 0, first_tap = 0, before = 0, after = 0;
  };
  const auto along = [](int stride, int before, int taps, int pixels, int results) {
    std::vector<Line> lines;
    for (int first = 0; first < stride; ++first) {
      Line l{first, (pixels - first + stride - 1) / stride};
      l.first_tap = (first + before) % stride;
      l.before = (first + before) / stride;
      l.taps = (taps - l.first_tap + stride - 1) / stride;
      l.after = results - 1 + l.taps - l.before - l.pixels;
      if (l.taps > 0) lines.push_back(l);
    }
    return lines;
  };
  const auto dense = [](const Line& l) {
    return std::min(l.before, l.after) >= 0 && std::max(l.before, l.after) < l.taps;
  };
  const Window& w = window;
  std::vector<Phase> phases;
  if (x.height < w.stride_y || x.width < w.stride_x) return phases;
  for (const Line& r : along(w.stride_y, w.top, w.height, x.height, y.height))
    for (const Line& c : along(w.stride_x, w.left, w.width, x.width, y.width)) {
      if (!dense(r) || !dense(c)) return {};
      phases.push_back(
          {.first_y = r.first,
           .first_x = c.first,
           .height = r.pixels,
           .width = c.pixels,
           .window = {r.taps, c.taps, 1, 1, r.before, c.before, r.after, c.after},
           .taps = {w.height, w.width, r.first_tap, c.first_tap, w.stride_y, w.stride_x}});
    }
  return phases;
}

/// The phases that a strided convolution is taken apart into: those of 1x1 filters, and in backward
/// steps those of others where there is AMX, whose kernels in oneDNN 2.6 are twice as slow with
/// strides. Images of few channels are slower so.
inline std::vector<Phase> dense_phases(const ConvolutionShape& window, const Tensor& x,
                                       const Tensor& y, bool with_amx) {
  if (!x.channels_last || window.groups > 1 || (window.stride_y == 1 && window.stride_x == 1))
    return {};
  std::vector<Phase> phases = phases_of(window, x.shape, y.shape);
  if (phases.size() > 1 && (!with_amx || x.block == 1)) return {};
  return phases;
}

/// Sets a tensor with channels last to zero.
inline void clear(const Tensor& t, int threads) {
  for_each_item(threads, t.shape.batch, [&](std::size_t n) {
    const std::size_t bytes = t.image() * bytes_of(t.element);
    std::memset(t.as<std::byte>() + n * bytes, 0, bytes);
  });
}

/// The pixels of one phase of a tensor with channels last, side by side in scratch memory.
class PhasePixels {
 public:
  PhasePixels(const Phase& phase, const Window& window, const Tensor& all, Planner& planner)
      : phase_(phase), window_(window), all_(all), taken_(all), threads_(planner.threads()) {
    taken_.shape.height = phase.height;
    taken_.shape.width = phase.width;
    copy_ = planner.scratch(taken_.bytes());
  }
  Operand operand() const { return {taken_, copy_}; }

  /// Copies them from the tensor.
  void read(const Frame& frame) const {
    for_each_pixel(frame, [](std::byte* all, std::byte* taken, std::size_t bytes) {
      std::memcpy(taken, all, bytes);
    });
  }
  /// Copies them to the tensor.
  void write(const Frame& frame) const {
    for_each_pixel(frame, [](std::byte* all, std::byte* taken, std::size_t bytes) {
      std::memcpy(all, taken, bytes);
    });
  }

 private:
  template <class F>
  void for_each_pixel(const Frame& frame, const F& f) const {
    const Shape& s = taken_.shape;
    const std::size_t bytes = all_.pixel_step() * bytes_of(all_.element);
    std::byte* copy = copy_.in<std::byte>(frame);
    for_each_item(threads_, std::size_t(s.batch) * s.height, [&](std::size_t row) {
      const std::size_t from =
          row / s.height * all_.shape.height + phase_.first_y + row % s.height * window_.stride_y;
      for (std::size_t x = 0; x < std::size_t(s.width); ++x)
        f(all_.as<std::byte>() +
              (from * all_.shape.width + phase_.first_x + x * window_.stride_x) * bytes,
          copy + (row * s.width + x) * bytes, bytes);
    });
  }

  Phase phase_;
  Window window_;
  Tensor all_, taken_;
  int threads_;
  Scratch copy_;
};

}  // namespace ringtrain::compute::onednn
