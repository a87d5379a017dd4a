#pragma once
#include <limits>

#include "compute/cuda/kernels/geometry.hpp"
#include "compute/cuda/kernels/lanes.hpp"
#include "compute/cuda/kernels/pool.hpp"

// The calls of pool.hpp for any queue: StreamQueue, or a CPU's in tests.
namespace ringtrain::cuda::kernels::work {

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

  explicit PoolGeometry(const PoolOperands& o)
      : rows{o.x_shape.height, o.y_shape.height, o.window.height, o.window.stride_y, o.window.top},
        columns{o.x_shape.width, o.y_shape.width, o.window.width, o.window.stride_x, o.window.left},
        channels(o.x_shape.channels) {}

  struct Place {
    int sample, row, column, channel;
  };
  constexpr Place place(std::uint32_t item, int height, int width) const {
    const std::uint32_t vectors = static_cast<std::uint32_t>(channels / w), pixel = item / vectors;
    const std::uint32_t line = pixel / width;
    return {static_cast<int>(line / height), static_cast<int>(line % height),
            static_cast<int>(pixel % width), static_cast<int>(item % vectors * w)};
  }
  constexpr Place window_of(std::uint32_t item) const {
    return place(item, rows.windows, columns.windows);
  }
  constexpr Place pixel_of(std::uint32_t item) const {
    return place(item, rows.image, columns.image);
  }
  constexpr std::size_t x_index(const Place& at, int row, int column) const {
    return ((std::size_t(at.sample) * rows.image + row) * columns.image + column) * channels +
           at.channel;
  }
  constexpr std::size_t y_index(const Place& at, int row, int column) const {
    return ((std::size_t(at.sample) * rows.windows + row) * columns.windows + column) * channels +
           at.channel;
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

template <class T, int w>
struct MaxPoolForward {
  PoolGeometry<w> geometry;
  const T* x;
  T* y;
  constexpr void operator()(std::uint32_t item) const {
    const auto at = geometry.window_of(item);
    Lanes<w> best{};
    for (int i = 0; i < w; ++i) best[i] = -std::numeric_limits<float>::infinity();
    geometry.for_each_tap(at.row, at.column, [&](int row, int column) {
      const auto v = load<w>(x + geometry.x_index(at, row, column));
      for (int i = 0; i < w; ++i) best[i] = best[i] < v[i] ? v[i] : best[i];
    });
    store(y + geometry.y_index(at, at.row, at.column), best);
  }
};

/// For a pixel: of each window that covers it, the gradient where the pixel is the maximum and no
/// earlier pixel of the window is.
template <class T, int w>
struct MaxPoolBackward {
  PoolGeometry<w> geometry;
  const T *x, *y, *dy;
  T* dx;
  constexpr void operator()(std::uint32_t item) const {
    const auto at = geometry.pixel_of(item);
    const auto own = load<w>(x + geometry.x_index(at, at.row, at.column));
    Lanes<w> sum{};
    geometry.for_each_window(at.row, at.column, [&](int row, int column) {
      const std::size_t from = geometry.y_index(at, row, column);
      const auto gradient = load<w>(dy + from),
                 won = winner(at, own, load<w>(y + from), row, column);
      for (int i = 0; i < w; ++i) sum[i] += won[i] != 0 ? gradient[i] : 0;
    });
    store(dx + geometry.x_index(at, at.row, at.column), sum);
  }

 private:
  using Place = typename PoolGeometry<w>::Place;

  constexpr Lanes<w> winner(const Place& at, const Lanes<w>& own, const Lanes<w>& best, int row,
                            int column) const {
    Lanes<w> won{};
    bool any = false;
    for (int i = 0; i < w; ++i) {
      won[i] = own[i] == best[i] ? 1.f : 0.f;
      any = any || own[i] == best[i];
    }
    if (!any) return won;
    geometry.for_each_tap(row, column, [&](int y, int x) {
      if (y > at.row || (y == at.row && x >= at.column)) return;
      const auto earlier = load<w>(this->x + geometry.x_index(at, y, x));
      for (int i = 0; i < w; ++i) won[i] = earlier[i] == best[i] ? 0.f : won[i];
    });
    return won;
  }
};

template <class T, int w>
struct AveragePoolForward {
  PoolGeometry<w> geometry;
  const T* x;
  T* y;
  constexpr void operator()(std::uint32_t item) const {
    const auto at = geometry.window_of(item);
    Lanes<w> sum{};
    geometry.for_each_tap(at.row, at.column, [&](int row, int column) {
      const auto v = load<w>(x + geometry.x_index(at, row, column));
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
      for (int i = 0; i < w; ++i) sum[i] += v[i] / static_cast<float>(taps);
    });
    store(dx + geometry.x_index(at, at.row, at.column), sum);
  }
};

/// The mean over a whole image: a block has some vectors of one sample, its rows of threads share
/// out the pixels.
template <class T, int w>
struct GlobalAverage {
  const T* x;
  T* y;
  ChannelGrid grid;  // of one sample, one row block
  std::uint32_t samples;

  Grid launch() const {
    return {samples * grid.column_blocks, grid.threads(), grid.threads() * w * sizeof(float)};
  }
  constexpr int phases() const { return 2 + folds(grid.rows); }
  constexpr void operator()(int phase, std::uint32_t block, std::uint32_t thread,
                            unsigned char* shared) const {
    float* sums = reinterpret_cast<float*>(shared) + thread;
    const std::uint32_t vector = grid.vector(block, thread), row = grid.row(thread);
    const std::uint32_t sample = block / grid.column_blocks;
    if (phase == 0)
      accumulate(sample, vector, row, sums);
    else if (phase + 1 < phases())
      fold(phase - 1, row, sums);
    else if (row == 0 && vector < grid.vectors)
      write(sample, vector, sums);
  }

 private:
  constexpr std::size_t channels() const { return std::size_t(grid.vectors) * w; }
  constexpr void accumulate(std::uint32_t sample, std::uint32_t vector, std::uint32_t row,
                            float* sums) const {
    Lanes<w> own{};
    if (vector < grid.vectors)
      for (std::uint32_t pixel = row; pixel < grid.pixels; pixel += grid.rows) {
        const std::size_t at = std::size_t(sample) * grid.pixels + pixel;
        const auto v = load<w>(x + at * channels() + vector * w);
        for (int i = 0; i < w; ++i) own[i] += v[i];
      }
    for (int i = 0; i < w; ++i) sums[i * grid.threads()] = own[i];
  }
  constexpr void fold(int round, std::uint32_t row, float* sums) const {
    const std::uint32_t other = fold_partner(row, round, grid.rows);
    if (other == grid.rows) return;
    for (int i = 0; i < w; ++i)
      sums[i * grid.threads()] += sums[i * grid.threads() + (other - row) * grid.columns];
  }
  constexpr void write(std::uint32_t sample, std::uint32_t vector, const float* sums) const {
    Lanes<w> mean{};
    for (int i = 0; i < w; ++i)
      mean[i] = sums[i * grid.threads()] / static_cast<float>(grid.pixels);
    store(y + sample * channels() + vector * w, mean);
  }
};

inline bool is_wide_pool(const PoolOperands& o, std::initializer_list<const void*> pointers) {
  return is_wide(o.element, {std::size_t(o.x_shape.channels)}, pointers);
}

template <class Queue>
void max_pool_forward(const PoolOperands& o, const void* x, void* y, Queue& queue) {
  with_type_and_width(o.element, is_wide_pool(o, {x, y}), [&]<class T>(T, auto w) {
    const MaxPoolForward<T, w> work{PoolGeometry<w>(o), static_cast<const T*>(x),
                                    static_cast<T*>(y)};
    queue.items(work, o.y_shape.elements() / w);
  });
}

template <class Queue>
void max_pool_backward(const PoolOperands& o, const void* x, const void* y, const void* dy,
                       void* dx, Queue& queue) {
  with_type_and_width(o.element, is_wide_pool(o, {x, y, dy, dx}), [&]<class T>(T, auto w) {
    const MaxPoolBackward<T, w> work{PoolGeometry<w>(o), static_cast<const T*>(x),
                                     static_cast<const T*>(y), static_cast<const T*>(dy),
                                     static_cast<T*>(dx)};
    queue.items(work, o.x_shape.elements() / w);
  });
}

/// Whether one window covers every image, without padding.
inline bool is_global(const PoolOperands& o) {
  return o.window.height == o.x_shape.height && o.window.width == o.x_shape.width &&
         o.window.top == 0 && o.window.left == 0 && o.y_shape.height == 1 && o.y_shape.width == 1;
}

template <class T, int w, class Queue>
void global_average(const PoolOperands& o, const T* x, T* y, Queue& queue) {
  const std::size_t pixels = std::size_t(o.x_shape.height) * o.x_shape.width;
  const GlobalAverage<T, w> work{x, y, channel_grid(pixels, o.x_shape.channels / w, pixels, 1),
                                 small(o.x_shape.batch)};
  queue.blocks(work, work.launch());
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

}  // namespace ringtrain::cuda::kernels::work
