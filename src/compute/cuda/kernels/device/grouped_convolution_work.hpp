#pragma once
#include "compute/cuda/kernels/arguments/geometry.hpp"
#include "compute/cuda/kernels/arguments/grouped_convolution.hpp"
#include "compute/cuda/kernels/device/activation.hpp"
#include "compute/cuda/kernels/device/depthwise_work.hpp"

// The calls of grouped_convolution.hpp for any queue: StreamQueue, or a CPU's in tests. Where it is
// not one of depthwise_work.hpp, a thread makes one number of a result; neighbours have
// neighbouring channels.
namespace ringtrain::compute::cuda::kernels::work {

/// The extents that all three kernels need.
struct GroupedExtents {
  Window window;
  Shape x, y;
  std::uint32_t in, out, taps;  // channels of a group
  explicit GroupedExtents(const GroupedConvolution& c)
      : window(c.window),
        x(c.x),
        y(c.y),
        in(small(c.x.channels / c.window.groups)),
        out(small(c.y.channels / c.window.groups)),
        taps(small(c.window.height * c.window.width)) {}
  constexpr std::size_t weights() const { return std::size_t(y.channels) * taps * in; }
};

/// An image's number, a row and a column of it, and a channel.
struct ElementPlace {
  int n, row, column, channel;
};
constexpr ElementPlace element_place(std::uint32_t item, const Shape& s) {
  const auto channels = static_cast<std::uint32_t>(s.channels),
             width = static_cast<std::uint32_t>(s.width),
             height = static_cast<std::uint32_t>(s.height);
  const std::uint32_t pixel = item / channels, line = pixel / width;
  return {static_cast<int>(line / height), static_cast<int>(line % height),
          static_cast<int>(pixel % width), static_cast<int>(item % channels)};
}
constexpr std::size_t pixel_at(const Shape& s, int n, int row, int column) {
  return ((std::size_t(n) * s.height + row) * s.width + column) * s.channels;
}

template <class T>
struct GroupedForward {
  GroupedExtents e;
  const T* x;
  const float *w, *b;
  T* y;
  Activation then;
  constexpr void operator()(std::uint32_t item) const {
    const ElementPlace at = element_place(item, e.y);
    const std::uint32_t first = at.channel / e.out * e.in;
    const float* filter = w + std::size_t(at.channel) * e.taps * e.in;
    float sum = b != nullptr ? b[at.channel] : 0;
    for (int ky = 0; ky < e.window.height; ++ky) {
      const int row = at.row * e.window.stride_y + ky - e.window.top;
      if (row < 0 || row >= e.x.height) continue;
      for (int kx = 0; kx < e.window.width; ++kx) {
        const int column = at.column * e.window.stride_x + kx - e.window.left;
        if (column < 0 || column >= e.x.width) continue;
        const T* from = x + pixel_at(e.x, at.n, row, column) + first;
        const float* tap = filter + std::size_t(ky * e.window.width + kx) * e.in;
        for (std::uint32_t i = 0; i < e.in; ++i) sum += static_cast<float>(from[i]) * tap[i];
      }
    }
    y[item] = static_cast<T>(value_of<true>(then, sum));
  }
};

template <class T>
struct GroupedInputGradient {
  GroupedExtents e;
  const T* dy;
  const float* w;
  T* dx;
  constexpr void operator()(std::uint32_t item) const {
    const ElementPlace at = element_place(item, e.x);
    const std::uint32_t group = at.channel / e.in, first = group * e.out;
    const float* filters = w + std::size_t(first) * e.taps * e.in + at.channel % e.in;
    float sum = 0;
    for (int ky = 0; ky < e.window.height; ++ky) {
      const int below = at.row + e.window.top - ky, row = below / e.window.stride_y;
      if (below < 0 || below % e.window.stride_y != 0 || row >= e.y.height) continue;
      for (int kx = 0; kx < e.window.width; ++kx) {
        const int right = at.column + e.window.left - kx, column = right / e.window.stride_x;
        if (right < 0 || right % e.window.stride_x != 0 || column >= e.y.width) continue;
        const T* from = dy + pixel_at(e.y, at.n, row, column) + first;
        const float* tap = filters + std::size_t(ky * e.window.width + kx) * e.in;
        for (std::uint32_t o = 0; o < e.out; ++o)
          sum += static_cast<float>(from[o]) * tap[std::size_t(o) * e.taps * e.in];
      }
    }
    dx[item] = static_cast<T>(sum);
  }
};

/// Sums over some rows of dy: part, tap, filter and its channel, from slow to fast.
template <class T>
struct GroupedWeightSums {
  GroupedExtents e;
  const T *x, *dy;
  float* sums;
  std::uint32_t parts;
  constexpr void operator()(std::uint32_t item) const {
    const std::uint32_t channel = item % e.in, filter = item / e.in % e.y.channels,
                        tap = item / e.in / e.y.channels % e.taps,
                        part = item / e.in / e.y.channels / e.taps;
    const int ky = tap / e.window.width, kx = tap % e.window.width;
    float sum = 0;
    for (std::uint32_t line = part; line < std::uint32_t(e.y.batch * e.y.height); line += parts) {
      const int n = line / e.y.height, row = line % e.y.height,
                from = row * e.window.stride_y + ky - e.window.top;
      if (from < 0 || from >= e.x.height) continue;
      const T* g = dy + pixel_at(e.y, n, row, 0) + filter;
      const T* v = x + pixel_at(e.x, n, from, 0) + filter / e.out * e.in + channel;
      for (int t = 0; t < e.y.width; ++t) {
        const int column = t * e.window.stride_x + kx - e.window.left;
        if (column < 0 || column >= e.x.width) continue;
        sum += static_cast<float>(g[std::size_t(t) * e.y.channels]) *
               static_cast<float>(v[std::size_t(column) * e.x.channels]);
      }
    }
    sums[item] = sum;
  }
};

/// dw in the order of the flat buffer, from those sums.
struct GroupedWeights {
  GroupedExtents e;
  const float* sums;
  float* dw;
  std::uint32_t parts;
  constexpr void operator()(std::uint32_t item) const {
    const std::uint32_t channel = item % e.in, tap = item / e.in % e.taps,
                        filter = item / e.in / e.taps;
    double total = 0;
    for (std::uint32_t part = 0; part < parts; ++part)
      total += sums[((std::size_t(part) * e.taps + tap) * e.y.channels + filter) * e.in + channel];
    dw[item] = static_cast<float>(total);
  }
};

/// In how many parts the rows of dy are summed: enough to fill a GPU.
inline std::uint32_t weight_parts(const GroupedConvolution& c) {
  constexpr std::size_t threads = std::size_t(1) << 19;
  const std::size_t rows = std::size_t(c.y.batch) * c.y.height;
  return small(std::clamp<std::size_t>(threads / GroupedExtents(c).weights(), 1, rows));
}

/// Bytes for any of the calls, whether the tensors are aligned or not.
inline std::size_t grouped_workspace(const GroupedConvolution& c) {
  const std::size_t weights = GroupedExtents(c).weights();
  const std::size_t bytes = weight_parts(c) * weights * sizeof(float);
  return is_depthwise(c, {}) ? std::max(bytes, depthwise_workspace(c)) : bytes;
}

template <class Queue>
void grouped_convolution_forward(const GroupedConvolution& c, const void* x, const float* w,
                                 const float* b, Activation then, void* y, float* workspace,
                                 Queue& queue) {
  if (is_depthwise(c, {x, y})) {
    depthwise_taps(c, w, false, workspace, queue);
    return depthwise_forward(c, x, workspace, b, then, y, queue);
  }
  with_type(c.element, [&]<class T>(T) {
    queue.items(GroupedForward<T>{GroupedExtents(c), static_cast<const T*>(x), w, b,
                                  static_cast<T*>(y), then},
                c.y.elements());
  });
}

template <class Queue>
void grouped_convolution_input_gradient(const GroupedConvolution& c, const void* dy, const float* w,
                                        void* dx, float* workspace, Queue& queue) {
  if (is_depthwise(c, {dy, dx})) {
    depthwise_taps(c, w, c.window.stride_x == 1, workspace, queue);
    return depthwise_input_gradient(c, dy, workspace, dx, queue);
  }
  with_type(c.element, [&]<class T>(T) {
    queue.items(GroupedInputGradient<T>{GroupedExtents(c), static_cast<const T*>(dy), w,
                                        static_cast<T*>(dx)},
                c.x.elements());
  });
}

template <class Queue>
void grouped_convolution_weight_gradient(const GroupedConvolution& c, const void* x, const void* dy,
                                         float* dw, float* workspace, Queue& queue) {
  if (is_depthwise(c, {x, dy})) return depthwise_weight_gradient(c, x, dy, dw, workspace, queue);
  const GroupedExtents e(c);
  const std::uint32_t parts = weight_parts(c);
  with_type(c.element, [&]<class T>(T) {
    queue.items(GroupedWeightSums<T>{e, static_cast<const T*>(x), static_cast<const T*>(dy),
                                     workspace, parts},
                parts * e.weights());
  });
  queue.items(GroupedWeights{e, workspace, dw, parts}, e.weights());
}

}  // namespace ringtrain::compute::cuda::kernels::work
