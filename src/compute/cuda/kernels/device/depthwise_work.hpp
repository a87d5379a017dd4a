#pragma once
#include <type_traits>
#include <utility>

#include "compute/cuda/kernels/arguments/grouped_convolution.hpp"
#include "compute/cuda/kernels/device/activation.hpp"
#include "compute/cuda/kernels/device/channel_sums.hpp"
#include "compute/cuda/kernels/device/channels_work.hpp"

// Depthwise convolutions of 3x3, 5x5 and 7x7 pixels with a step of 1 or 2, as MobileNets,
// EfficientNets and ConvNeXts have them. A thread keeps to 16 bytes of channels, and makes four
// neighbouring results from taps in registers.
namespace ringtrain::compute::cuda::kernels::work {

/// Calls f(n) for 0 to `count` - 1, each a std::integral_constant: unrolled, so that arrays which n
/// indexes stay in registers.
template <int count, class F>
constexpr void unrolled(F f) {
  [&]<int... n>(std::integer_sequence<int, n...>) { (f(std::integral_constant<int, n>()), ...); }
  (std::make_integer_sequence<int, count>());
}

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
    unrolled<size>([&](auto k) { at[k] = load_constant<w>(taps + k * channels); });
  }
};

/// Some neighbouring columns of a row of an image, with zero where there is none. They are loaded
/// one behind the other, before any is used.
template <class T, int w, int count>
struct PixelRow {
  Pack<T, w> at[count];
  constexpr PixelRow(const T* row, std::size_t channels, int first, int width) : at{} {
    unrolled<count>([&](auto j) {
      const int column = first + j;
      if (column >= 0 && column < width) at[j] = get_constant<w>(row + column * channels);
    });
  }
};

template <int w>
constexpr void multiply_add(Lanes<w>& sum, const Lanes<w>& a, const Lanes<w>& b) {
  for (int i = 0; i < w; ++i) sum[i] += a[i] * b[i];
}

template <class T, int w>
constexpr void store_strip(T* row, const Strip& at, const Shape& s, const Lanes<w>* sums) {
  unrolled<Strip::pixels>([&](auto r) {
    if (at.column + r < s.width) store(row + std::size_t(at.column + r) * s.channels, sums[r]);
  });
}

/// y = relu?(x * taps + b?).
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
      unrolled<Strip::pixels>([&](auto r) {
        for (int i = 0; i < w; ++i) sums[r][i] = value_of<false>(o.then, sums[r][i] + bias[i]);
      });
      store_strip(row_of(o.y, o.y_shape, at.image, at.row, channel), at, o.y_shape, sums);
    }
  };
  constexpr Column column(std::uint32_t first) const { return {*this, first}; }

 private:
  constexpr void add_row(int ky, const Strip& at, int row, std::uint32_t channel,
                         Lanes<w>* sums) const {
    const std::size_t channels = x_shape.channels;
    const TapRow<w, size> tap(taps + ky * size * channels + channel, channels);
    constexpr int columns = (Strip::pixels - 1) * step + size;
    const PixelRow<T, w, columns> row_of_x(row_of(x, x_shape, at.image, row, channel), channels,
                                           at.column * step - left, x_shape.width);
    unrolled<columns>([&](auto j) {
      const auto v = widened(row_of_x.at[j]);
      unrolled<Strip::pixels>([&](auto r) {
        constexpr int kx = decltype(j)::value - decltype(r)::value * step;
        if constexpr (kx >= 0 && kx < size) multiply_add(sums[r], v, tap.at[kx]);
      });
    });
  }
};

/// dx of a step of 2. `odd`: 1 where the padding on the left is odd, else 0.
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
    // From the column that is farthest to the left: tap kx = r + odd + 2 * (most - j).
    constexpr int most = (size - 1) / 2, columns = most + Strip::pixels / 2 + 1;
    const PixelRow<T, w, columns> row_of_dy(row_of(dy, y_shape, at.image, row, channel), channels,
                                            (at.column + left) / 2 - most, y_shape.width);
    unrolled<columns>([&](auto j) {
      const auto g = widened(row_of_dy.at[j]);
      unrolled<Strip::pixels>([&](auto r) {
        constexpr int kx = decltype(r)::value + odd + 2 * (most - decltype(j)::value);
        if constexpr (kx >= 0 && kx < size) multiply_add(sums[r], g, tap.at[kx]);
      });
    });
  }
};

/// dw. Its channels are those of the image for the first row of taps, then for the second and so
/// on.
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
      const PixelRow<T, w, size> row_of_x(
          row_of(o.x, o.x_shape, line / o.y_shape.height, row, channel), o.x_shape.channels,
          at % o.y_shape.width * o.step - o.left, o.x_shape.width);
      unrolled<size>([&](auto k) { multiply_add(sums[k], g, widened(row_of_x.at[k])); });
    }
  };
  constexpr Column column(std::uint32_t first) const {
    const auto channels = static_cast<std::uint32_t>(x_shape.channels);
    return {*this, first % channels, static_cast<int>(first / channels)};
  }
};

/// Writes them in the order of the flat buffer.
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
  if (!is_relu_or_none(then)) {  // behind BatchNorm there is none
    depthwise_forward(c, x, taps, b, Activation::none, y, queue);
    return add_bias(c.element, c.y.pixels(), c.y.channels, y, nullptr, y, then, queue);
  }
  with_type(c.element, [&]<class T>(T) {
    with_size(c, [&](auto size) {
      const auto run = [&](auto step) {
        const DepthwiseForward<T, full_width<T>, size, step> term{
            c.x,  c.y, c.window.top, c.window.left,     static_cast<const T*>(x),
            taps, b,   then,         static_cast<T*>(y)};
        map_pixels(Strip::count(c.y), c.y.channels, term, queue, 1);
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
        map_pixels(Strip::count(c.x), c.x.channels, term, queue, 1);
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
