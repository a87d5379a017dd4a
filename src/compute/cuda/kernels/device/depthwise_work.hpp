#pragma once
#include <type_traits>

#include "compute/cuda/kernels/arguments/grouped_convolution.hpp"
#include "compute/cuda/kernels/device/activation.hpp"
#include "compute/cuda/kernels/device/channel_sums.hpp"

// Depthwise convolutions of 3x3, 5x5 and 7x7 pixels with a step of 1 or 2, as MobileNets,
// EfficientNets and ConvNeXts have them. A thread keeps to 16 bytes of channels, and makes four
// neighbouring results from taps in registers.
namespace ringtrain::compute::cuda::kernels::work {

#ifdef __CUDA_ARCH__
#define RINGTRAIN_UNROLL _Pragma("unroll")
#else
#define RINGTRAIN_UNROLL
#endif

/// The filters with taps slow and channels fast; turned by half a circle for input gradients with a
/// step of 1, which are forward steps.
struct DepthwiseTaps {
  const float* w;
  float* taps;
  std::uint32_t channels, count;
  bool turned;
  constexpr void operator()(std::uint32_t item) const {
    const std::uint32_t tap = item / channels, channel = item % channels;
    taps[item] = w[std::size_t(channel) * count + (turned ? count - 1 - tap : tap)];
  }
};

/// Four neighbouring pixels of a row: results of one thread.
struct Strip {
  static constexpr int pixels = 4;
  int image, row, column;
  constexpr Strip(std::uint32_t strip, const Shape& s) : image(0), row(0), column(0) {
    const int strips = (s.width + pixels - 1) / pixels, line = static_cast<int>(strip) / strips;
    image = line / s.height;
    row = line % s.height;
    column = static_cast<int>(strip) % strips * pixels;
  }
  static std::size_t count(const Shape& s) {
    return std::size_t(s.batch) * s.height * divide_up(s.width, pixels);
  }
};

template <class T>
constexpr T* row_of(T* tensor, const Shape& s, int image, int row, std::uint32_t channel) {
  return tensor + (std::size_t(image) * s.height + row) * s.width * s.channels + channel;
}

/// One row of a filter's taps, for the channels of a thread.
template <int w, int size>
struct TapRow {
  Lanes<w> at[size];
  constexpr TapRow(const float* taps, std::size_t channels) : at{} {
    RINGTRAIN_UNROLL
    for (int k = 0; k < size; ++k) at[k] = load_constant<w>(taps + k * channels);
  }
};

template <int w>
constexpr void multiply_add(Lanes<w>& sum, const Lanes<w>& a, const Lanes<w>& b) {
  for (int i = 0; i < w; ++i) sum[i] += a[i] * b[i];
}

template <class T, int w>
constexpr void store_strip(T* row, const Strip& at, const Shape& s, const Lanes<w>* sums) {
  RINGTRAIN_UNROLL
  for (int r = 0; r < Strip::pixels; ++r)
    if (at.column + r < s.width) store(row + std::size_t(at.column + r) * s.channels, sums[r]);
}

/// y = then(x * taps + b?).
template <class T, int w, int size, int step>
struct DepthwiseForward {
  static constexpr int width = w;
  Shape x_shape, y_shape;
  int top, left;
  const T* x;
  const float *taps, *b;
  Activation then;
  T* y;

  struct Column {
    DepthwiseForward o;
    std::uint32_t channel;
    constexpr void run(std::uint32_t strip) const {
      const Strip at(strip, o.y_shape);
      Lanes<w> sums[Strip::pixels] = {};
      for (int ky = 0; ky < size; ++ky) {
        const int row = at.row * step + ky - o.top;
        if (row >= 0 && row < o.x_shape.height) o.add_row(ky, at, row, channel, sums);
      }
      const auto bias = load_or<w>(o.b, channel, 0);
      RINGTRAIN_UNROLL
      for (int r = 0; r < Strip::pixels; ++r)
        for (int i = 0; i < w; ++i) sums[r][i] = value_of<true>(o.then, sums[r][i] + bias[i]);
      store_strip(row_of(o.y, o.y_shape, at.image, at.row, channel), at, o.y_shape, sums);
    }
  };
  constexpr Column column(std::uint32_t first) const { return {*this, first}; }

 private:
  constexpr void add_row(int ky, const Strip& at, int row, std::uint32_t channel,
                         Lanes<w>* sums) const {
    const std::size_t channels = x_shape.channels;
    const TapRow<w, size> tap(taps + ky * size * channels + channel, channels);
    const T* from = row_of(x, x_shape, at.image, row, channel);
    RINGTRAIN_UNROLL
    for (int j = 0; j < (Strip::pixels - 1) * step + size; ++j) {
      const int column = at.column * step - left + j;
      if (column < 0 || column >= x_shape.width) continue;
      const auto v = load_constant<w>(from + column * channels);
      RINGTRAIN_UNROLL
      for (int r = 0; r < Strip::pixels; ++r)
        if (const int kx = j - r * step; kx >= 0 && kx < size) multiply_add(sums[r], v, tap.at[kx]);
    }
  }
};

/// dx of a step of 2. `odd`: whether the padding on the left is.
template <class T, int w, int size, int odd>
struct DepthwiseInputGradient {
  static constexpr int width = w;
  Shape x_shape, y_shape;
  int top, left;
  const T* dy;
  const float* taps;
  T* dx;

  struct Column {
    DepthwiseInputGradient o;
    std::uint32_t channel;
    constexpr void run(std::uint32_t strip) const {
      const Strip at(strip, o.x_shape);
      Lanes<w> sums[Strip::pixels] = {};
      for (int ky = 0; ky < size; ++ky) {
        const int below = at.row + o.top - ky, row = below / 2;
        if (below >= 0 && below % 2 == 0 && row < o.y_shape.height)
          o.add_row(ky, at, row, channel, sums);
      }
      store_strip(row_of(o.dx, o.x_shape, at.image, at.row, channel), at, o.x_shape, sums);
    }
  };
  constexpr Column column(std::uint32_t first) const { return {*this, first}; }

 private:
  // Pixel r of the strip has tap kx of result (column + r + left - kx) / 2.
  constexpr void add_row(int ky, const Strip& at, int row, std::uint32_t channel,
                         Lanes<w>* sums) const {
    const std::size_t channels = x_shape.channels;
    const TapRow<w, size> tap(taps + ky * size * channels + channel, channels);
    const T* from = row_of(dy, y_shape, at.image, row, channel);
    const int last = (at.column + left) / 2;
    RINGTRAIN_UNROLL
    for (int j = -Strip::pixels / 2; j <= (size - 1) / 2; ++j) {
      const int column = last - j;
      if (column < 0 || column >= y_shape.width) continue;
      const auto g = load_constant<w>(from + column * channels);
      RINGTRAIN_UNROLL
      for (int r = 0; r < Strip::pixels; ++r)
        if (const int kx = r + odd + 2 * j; kx >= 0 && kx < size)
          multiply_add(sums[r], g, tap.at[kx]);
    }
  }
};

/// dw, of a row of taps: vector v of all is one of the channels, for row v / vectors.
template <class T, int w, int size>
struct DepthwiseWeightTerm {
  static constexpr int values = size, width = w;
  Shape x_shape, y_shape;
  int top, left, step;
  const T *x, *dy;

  struct Column {
    DepthwiseWeightTerm o;
    std::uint32_t channel;
    int ky;
    constexpr void add(std::uint32_t pixel, Lanes<w>* sums) const {
      const int at = static_cast<int>(pixel), line = at / o.y_shape.width;
      const int row = line % o.y_shape.height * o.step + ky - o.top;
      if (row < 0 || row >= o.x_shape.height) return;
      const auto g = load_constant<w>(o.dy + std::size_t(pixel) * o.y_shape.channels + channel);
      const T* from = row_of(o.x, o.x_shape, line / o.y_shape.height, row, channel);
      RINGTRAIN_UNROLL
      for (int kx = 0; kx < size; ++kx) {
        const int column = at % o.y_shape.width * o.step + kx - o.left;
        if (column >= 0 && column < o.x_shape.width)
          multiply_add(sums[kx], g,
                       load_constant<w>(from + std::size_t(column) * o.x_shape.channels));
      }
    }
  };
  constexpr Column column(std::uint32_t first) const {
    const auto channels = static_cast<std::uint32_t>(x_shape.channels);
    return {*this, first % channels, static_cast<int>(first / channels)};
  }
};
#undef RINGTRAIN_UNROLL

/// Into the order of the flat buffer.
template <int size>
struct WriteDepthwiseWeights {
  float* dw;
  std::uint32_t channels;
  template <class Total>
  constexpr void operator()(std::uint32_t row_and_channel, const Total* totals) const {
    const std::uint32_t row = row_and_channel / channels, channel = row_and_channel % channels;
    for (int k = 0; k < size; ++k)
      dw[(std::size_t(channel) * size + row) * size + k] = static_cast<float>(totals[k]);
  }
};

/// Whether those kernels are for `c`, whose tensors are at `pointers`.
inline bool is_depthwise(const GroupedConvolution& c, std::initializer_list<const void*> pointers) {
  const ConvolutionShape& w = c.window;
  const bool size = w.height == 3 || w.height == 5 || w.height == 7;
  return w.groups == c.x.channels && w.groups == c.y.channels && size && w.width == w.height &&
         w.stride_y == w.stride_x && w.stride_x <= 2 &&
         is_wide(c.element, {std::size_t(c.x.channels)}, pointers);
}

/// Calls use(size) with the filter's height as a std::integral_constant.
template <class Use>
void with_size(const GroupedConvolution& c, Use use) {
  if (c.window.height == 3) return use(std::integral_constant<int, 3>());
  if (c.window.height == 5) return use(std::integral_constant<int, 5>());
  use(std::integral_constant<int, 7>());
}

template <class Queue>
void depthwise_taps(const GroupedConvolution& c, const float* w, bool turned, float* taps,
                    Queue& queue) {
  const DepthwiseTaps work{w, taps, small(c.x.channels), small(c.window.height * c.window.width),
                           turned};
  queue.items(work, std::size_t(work.count) * work.channels);
}

template <class Queue>
void depthwise_forward(const GroupedConvolution& c, const void* x, const float* taps,
                       const float* b, Activation then, void* y, Queue& queue) {
  with_type(c.element, [&]<class T>(T) {
    with_size(c, [&](auto size) {
      const auto run = [&](auto step) {
        const DepthwiseForward<T, full_width<T>, size, step> term{
            c.x,  c.y, c.window.top, c.window.left,     static_cast<const T*>(x),
            taps, b,   then,         static_cast<T*>(y)};
        map_pixels(Strip::count(c.y), c.y.channels, term, queue);
      };
      if (c.window.stride_x == 1) return run(std::integral_constant<int, 1>());
      run(std::integral_constant<int, 2>());
    });
  });
}

/// `taps` are turned for a step of 1.
template <class Queue>
void depthwise_input_gradient(const GroupedConvolution& c, const void* dy, const float* taps,
                              void* dx, Queue& queue) {
  if (c.window.stride_x == 1) {
    GroupedConvolution turned{c.element, c.window, c.y, c.x};
    turned.window.top = c.window.height - 1 - c.window.top;
    turned.window.left = c.window.width - 1 - c.window.left;
    return depthwise_forward(turned, dy, taps, nullptr, Activation::none, dx, queue);
  }
  with_type(c.element, [&]<class T>(T) {
    with_size(c, [&](auto size) {
      const auto run = [&](auto odd) {
        const DepthwiseInputGradient<T, full_width<T>, size, odd> term{c.x,
                                                                       c.y,
                                                                       c.window.top,
                                                                       c.window.left,
                                                                       static_cast<const T*>(dy),
                                                                       taps,
                                                                       static_cast<T*>(dx)};
        map_pixels(Strip::count(c.x), c.x.channels, term, queue);
      };
      if (c.window.left % 2 == 0) return run(std::integral_constant<int, 0>());
      run(std::integral_constant<int, 1>());
    });
  });
}

/// What the sums of depthwise_weight_gradient() take.
inline std::size_t depthwise_workspace(const GroupedConvolution& c) {
  const int size = c.window.height;
  return sums_workspace(c.y.pixels(), std::size_t(size) * c.x.channels, size);
}

template <class Queue>
void depthwise_weight_gradient(const GroupedConvolution& c, const void* x, const void* dy,
                               float* dw, float* workspace, Queue& queue) {
  with_type(c.element, [&]<class T>(T) {
    with_size(c, [&](auto size) {
      constexpr int width = size == 7 ? 4 : full_width<T>;  // else a block wants 57 KB for its sums
      const DepthwiseWeightTerm<T, width, size> term{c.x,
                                                     c.y,
                                                     c.window.top,
                                                     c.window.left,
                                                     c.window.stride_x,
                                                     static_cast<const T*>(x),
                                                     static_cast<const T*>(dy)};
      sum_pixels(c.y.pixels(), std::size_t(size) * c.x.channels, term,
                 WriteDepthwiseWeights<size>{dw, small(c.x.channels)}, workspace, queue);
    });
  });
}

}  // namespace ringtrain::compute::cuda::kernels::work
