#pragma once
#include "compute/cuda/kernels/arguments/geometry.hpp"
#include "compute/cuda/kernels/arguments/pool.hpp"
#include "compute/cuda/kernels/device/channel_sums.hpp"

// Where the windows of pools lie, for their kernels.

// The average pools of pool.hpp for any queue: StreamQueue, or a CPU's in tests.

namespace ringtrain::compute::cuda::kernels::work {

/// One direction of a window: where it lies on the image, and which windows cover a pixel.
struct Axis {
  int image, windows, kernel, stride, before;

  constexpr int first_tap(int window) const {
    const int start = window * stride - before;
    return start > 0 ? start : 0;
  }
  constexpr int end_tap(int window) const {
    const int end = window * stride - before + kernel;
    return end < image ? end : image;
  }
  constexpr int taps(int window) const { return end_tap(window) - first_tap(window); }
  constexpr int first_window(int pixel) const {
    const int past = pixel + before - kernel;
    return past < 0 ? 0 : past / stride + 1;
  }
  constexpr int end_window(int pixel) const {
    const int end = (pixel + before) / stride + 1;
    return end < windows ? end : windows;
  }
};

/// The geometry of a pool, and where vectors of `w` channels lie.
template <int w>
struct PoolGeometry {
  Axis rows, columns;
  int channels;
  std::size_t y_pitch;

  explicit constexpr PoolGeometry(const PoolOperands& o)
      : rows{o.x_shape.height, o.y_shape.height, o.window.height, o.window.stride_y, o.window.top},
        columns{o.x_shape.width, o.y_shape.width, o.window.width, o.window.stride_x, o.window.left},
        channels(o.x_shape.channels),
        y_pitch(pitch_or(o.y_pitch, o.x_shape.channels)) {}

  struct Place {
    int sample, row, column, channel;
  };
  constexpr Place place(std::uint32_t pixel, std::uint32_t channel, int height, int width) const {
    const std::uint32_t line = pixel / width;
    return {static_cast<int>(line / height), static_cast<int>(line % height),
            static_cast<int>(pixel % width), static_cast<int>(channel)};
  }
  constexpr Place window_of(std::uint32_t item) const {
    const std::uint32_t vectors = static_cast<std::uint32_t>(channels / w);
    return place(item / vectors, item % vectors * w, rows.windows, columns.windows);
  }
  constexpr Place pixel_of(std::uint32_t item) const {
    const std::uint32_t vectors = static_cast<std::uint32_t>(channels / w);
    return place(item / vectors, item % vectors * w, rows.image, columns.image);
  }
  constexpr std::size_t x_index(const Place& at, int row, int column) const {
    return ((std::size_t(at.sample) * rows.image + row) * columns.image + column) * channels +
           at.channel;
  }
  constexpr std::size_t y_index(const Place& at, int row, int column) const {
    return ((std::size_t(at.sample) * rows.windows + row) * columns.windows + column) * y_pitch +
           at.channel;
  }
  /// Of a byte a window and channel, dense.
  constexpr std::size_t winner_index(const Place& at, int row, int column) const {
    return ((std::size_t(at.sample) * rows.windows + row) * columns.windows + column) * channels +
           at.channel;
  }
  /// The number of a pixel among the taps of a window, in row order; -1 outside.
  constexpr int tap(int row, int column, int pixel_row, int pixel_column) const {
    const int y = pixel_row - (row * rows.stride - rows.before);
    const int x = pixel_column - (column * columns.stride - columns.before);
    const bool inside = y >= 0 && y < rows.kernel && x >= 0 && x < columns.kernel;
    return inside ? y * columns.kernel + x : -1;
  }
  /// Calls f(row, column) for the pixels of a window, in row order.
  template <class F>
  constexpr void for_each_tap(int row, int column, F f) const {
    for (int y = rows.first_tap(row); y < rows.end_tap(row); ++y)
      for (int x = columns.first_tap(column); x < columns.end_tap(column); ++x) f(y, x);
  }
  /// Calls f(row, column) for the windows that cover a pixel.
  template <class F>
  constexpr void for_each_window(int row, int column, F f) const {
    for (int y = rows.first_window(row); y < rows.end_window(row); ++y)
      for (int x = columns.first_window(column); x < columns.end_window(column); ++x) f(y, x);
  }
};

inline bool is_wide_pool(const PoolOperands& o, std::initializer_list<const void*> pointers) {
  return is_wide(o.element, {std::size_t(o.x_shape.channels), o.y_pitch}, pointers);
}

template <class T, int w>
struct AveragePoolForward {
  PoolGeometry<w> geometry;
  const T* x;
  T* y;
  constexpr void operator()(std::uint32_t item) const {
    const auto at = geometry.window_of(item);
    Lanes<w> sum{};
    geometry.for_each_tap(at.row, at.column, [&](int row, int column) {
      const auto v = load_constant<w>(x + geometry.x_index(at, row, column));
      for (int i = 0; i < w; ++i) sum[i] += v[i];
    });
    const int taps = geometry.rows.taps(at.row) * geometry.columns.taps(at.column);
    for (int i = 0; i < w; ++i) sum[i] /= static_cast<float>(taps);
    store(y + geometry.y_index(at, at.row, at.column), sum);
  }
};

template <class T, int w>
struct AveragePoolBackward {
  PoolGeometry<w> geometry;
  const T* dy;
  T* dx;
  constexpr void operator()(std::uint32_t item) const {
    const auto at = geometry.pixel_of(item);
    Lanes<w> sum{};
    geometry.for_each_window(at.row, at.column, [&](int row, int column) {
      const auto v = load<w>(dy + geometry.y_index(at, row, column));
      const int taps = geometry.rows.taps(row) * geometry.columns.taps(column);
      const float share = 1 / static_cast<float>(taps);
      for (int i = 0; i < w; ++i) sum[i] += v[i] * share;
    });
    store(dx + geometry.x_index(at, at.row, at.column), sum);
  }
};

/// The mean over a whole image.
template <class T, int w>
struct GlobalAverage {
  static constexpr int width = w;
  const T* x;
  T* y;
  std::size_t y_pitch, pixels, channels;
  constexpr void add(std::uint32_t sample, std::uint32_t pixel, std::uint32_t channel,
                     Lanes<w>& sum) const {
    const auto v = load_constant<w>(x + (sample * pixels + pixel) * channels + channel);
    for (int i = 0; i < w; ++i) sum[i] += v[i];
  }
  constexpr void finish(std::uint32_t sample, std::uint32_t channel, Lanes<w> sum) const {
    for (int i = 0; i < w; ++i) sum[i] /= static_cast<float>(pixels);
    store(y + sample * y_pitch + channel, sum);
  }
};

/// Whether one window covers every image, without padding.
inline bool is_global(const PoolOperands& o) {
  return o.window.height == o.x_shape.height && o.window.width == o.x_shape.width &&
         o.window.top == 0 && o.window.left == 0 && o.y_shape.height == 1 && o.y_shape.width == 1;
}

template <class T, int w, class Queue>
void global_average(const PoolOperands& o, const T* x, T* y, Queue& queue) {
  const std::size_t pixels = std::size_t(o.x_shape.height) * o.x_shape.width,
                    channels = o.x_shape.channels;
  sum_pixels_of_samples(o.x_shape.batch, pixels, channels,
                        GlobalAverage<T, w>{x, y, pitch_or(o.y_pitch, channels), pixels, channels},
                        queue);
}

template <class Queue>
void average_pool_forward(const PoolOperands& o, const void* x, void* y, Queue& queue) {
  with_type_and_width(o.element, is_wide_pool(o, {x, y}), [&]<class T>(T, auto w) {
    const T* from = static_cast<const T*>(x);
    T* to = static_cast<T*>(y);
    if (is_global(o)) return global_average<T, w>(o, from, to, queue);
    const AveragePoolForward<T, w> work{PoolGeometry<w>(o), from, to};
    queue.items(work, o.y_shape.elements() / w);
  });
}

template <class Queue>
void average_pool_backward(const PoolOperands& o, const void* dy, void* dx, Queue& queue) {
  with_type_and_width(o.element, is_wide_pool(o, {dy, dx}), [&]<class T>(T, auto w) {
    const AveragePoolBackward<T, w> work{PoolGeometry<w>(o), static_cast<const T*>(dy),
                                         static_cast<T*>(dx)};
    queue.items(work, o.x_shape.elements() / w);
  });
}

/// Where a number of a dense NHWC tensor lies.
struct PixelPlace {
  int n, row, column, channel;
};
constexpr PixelPlace pixel_place(std::uint32_t item, const Shape& s) {
  const int pixel = static_cast<int>(item / s.channels), line = pixel / s.width;
  return {line / s.height, line % s.height, pixel % s.width, static_cast<int>(item % s.channels)};
}
constexpr std::size_t place_of(const PixelPlace& at, const Shape& s) {
  return ((std::size_t(at.n) * s.height + at.row) * s.width + at.column) * s.channels + at.channel;
}

template <class T>
struct FilterForward {
  FilterOperands o;
  const T* x;
  T* y;
  constexpr void operator()(std::uint32_t item) const {
    const PixelPlace to = pixel_place(item, o.y_shape);
    const Window& w = o.window;
    float sum = 0;
    for (int ky = 0; ky < w.height; ++ky)
      for (int kx = 0; kx < w.width; ++kx) {
        const int row = to.row * w.stride_y + ky - w.top,
                  column = to.column * w.stride_x + kx - w.left;
        if (row < 0 || row >= o.x_shape.height || column < 0 || column >= o.x_shape.width) continue;
        sum += o.taps[ky * w.width + kx] *
               static_cast<float>(x[place_of({to.n, row, column, to.channel}, o.x_shape)]);
      }
    y[item] = static_cast<T>(sum);
  }
};

template <class T>
struct FilterBackward {
  FilterOperands o;
  const T* dy;
  T* dx;
  constexpr void operator()(std::uint32_t item) const {
    const PixelPlace to = pixel_place(item, o.x_shape);
    const Window& w = o.window;
    float sum = 0;
    for (int ky = 0; ky < w.height; ++ky)
      for (int kx = 0; kx < w.width; ++kx) {
        const int below = to.row + w.top - ky, right = to.column + w.left - kx;
        if (below < 0 || right < 0 || below % w.stride_y != 0 || right % w.stride_x != 0) continue;
        const int row = below / w.stride_y, column = right / w.stride_x;
        if (row >= o.y_shape.height || column >= o.y_shape.width) continue;
        sum += o.taps[ky * w.width + kx] *
               static_cast<float>(dy[place_of({to.n, row, column, to.channel}, o.y_shape)]);
      }
    dx[item] = static_cast<T>(sum);
  }
};

template <class Queue>
void filter_forward(const FilterOperands& o, const void* x, void* y, Queue& queue) {
  with_type(o.element, [&]<class T>(T) {
    queue.items(FilterForward<T>{o, static_cast<const T*>(x), static_cast<T*>(y)},
                o.y_shape.elements());
  });
}
template <class Queue>
void filter_backward(const FilterOperands& o, const void* dy, void* dx, Queue& queue) {
  with_type(o.element, [&]<class T>(T) {
    queue.items(FilterBackward<T>{o, static_cast<const T*>(dy), static_cast<T*>(dx)},
                o.x_shape.elements());
  });
}

constexpr Shape padded_shape(Shape s, int border) {
  s.height += 2 * border;
  s.width += 2 * border;
  return s;
}

template <class T>
struct ReflectPadForward {
  Shape x_shape, y_shape;
  int border;
  const T* x;
  T* y;
  constexpr void operator()(std::uint32_t item) const {
    const PixelPlace to = pixel_place(item, y_shape);
    y[item] = x[place_of({to.n, reflected(to.row - border, x_shape.height),
                          reflected(to.column - border, x_shape.width), to.channel},
                         x_shape)];
  }
};

/// Of one axis: the up to three places of the padded image that show pixel `at`.
struct Mirrored {
  int places[3], count = 0;
  constexpr Mirrored(int at, int size, int border) : places{} {
    places[count++] = at + border;
    if (at > 0 && at <= border) places[count++] = border - at;
    if (at < size - 1 && size - 1 - at <= border) places[count++] = border + 2 * (size - 1) - at;
  }
};

template <class T>
struct ReflectPadBackward {
  Shape x_shape, y_shape;
  int border;
  const T* dy;
  T* dx;
  constexpr void operator()(std::uint32_t item) const {
    const PixelPlace to = pixel_place(item, x_shape);
    const Mirrored rows(to.row, x_shape.height, border), columns(to.column, x_shape.width, border);
    float sum = 0;
    for (int i = 0; i < rows.count; ++i)
      for (int j = 0; j < columns.count; ++j)
        sum += static_cast<float>(
            dy[place_of({to.n, rows.places[i], columns.places[j], to.channel}, y_shape)]);
    dx[item] = static_cast<T>(sum);
  }
};

template <class Queue>
void reflect_pad_forward(Element element, const Shape& x_shape, int border, const void* x, void* y,
                         Queue& queue) {
  const Shape padded = padded_shape(x_shape, border);
  with_type(element, [&]<class T>(T) {
    queue.items(
        ReflectPadForward<T>{x_shape, padded, border, static_cast<const T*>(x), static_cast<T*>(y)},
        padded.elements());
  });
}
template <class Queue>
void reflect_pad_backward(Element element, const Shape& x_shape, int border, const void* dy,
                          void* dx, Queue& queue) {
  with_type(element, [&]<class T>(T) {
    queue.items(ReflectPadBackward<T>{x_shape, padded_shape(x_shape, border), border,
                                      static_cast<const T*>(dy), static_cast<T*>(dx)},
                x_shape.elements());
  });
}

}  // namespace ringtrain::compute::cuda::kernels::work
