#pragma once
#include <limits>
#include <type_traits>

#include "compute/cuda/kernels/device/activation.hpp"
#include "compute/cuda/kernels/device/batch_norm_work.hpp"
#include "compute/cuda/kernels/device/pool_work.hpp"

// The max pools of pool.hpp for any queue: StreamQueue, or a CPU's in tests.
namespace ringtrain::compute::cuda::kernels::work {

inline constexpr float lowest = -std::numeric_limits<float>::infinity();

/// Whether a window's maximum moves on from `best` to `v`. As in PyTorch it is no number where one
/// of the window is none, and then the last of those: else the loss would not show an overflow.
constexpr bool wins(float v, float best) { return best < v || v != v; }

/// What a pool's prologue makes of the channels from `first` on.
template <int w>
struct PrologueLanes {
  Lanes<w> scale, bias;
  bool relu;

  constexpr Lanes<w> operator()(Lanes<w> v) const {
    for (int i = 0; i < w; ++i) v[i] = v[i] * scale[i] + bias[i];
    for (int i = 0; i < w; ++i) v[i] = relu ? rectify(v[i]) : v[i];
    return v;
  }
};

template <int w>
constexpr PrologueLanes<w> prologue_lanes(const PoolPrologue& how, std::uint32_t first) {
  return {load_or<w>(how.scale, first, 1), load_or<w>(how.bias, first, 0), how.relu};
}

template <class T, int w>
struct MaxPoolForwardTerm {
  static constexpr int width = w;
  PoolGeometry<w> geometry;
  PoolPrologue prologue;
  const T* x;
  T* y;
  std::uint8_t* winners;

  struct Column {
    PoolGeometry<w> geometry;
    PrologueLanes<w> prologue;
    const T* x;
    T* y;
    std::uint8_t* winners;
    std::uint32_t channel;
    constexpr void run(std::uint32_t window) const {
      const auto at =
          geometry.place(window, channel, geometry.rows.windows, geometry.columns.windows);
      Lanes<w> best{};
      Pack<std::uint8_t, w> winner{};
      for (int i = 0; i < w; ++i) best[i] = lowest, winner.at[i] = no_winner;
      geometry.for_each_tap(at.row, at.column, [&](int row, int column) {
        const auto v = prologue(load_constant<w>(x + geometry.x_index(at, row, column)));
        const auto tap = static_cast<std::uint8_t>(geometry.tap(at.row, at.column, row, column));
        for (int i = 0; i < w; ++i) {
          winner.at[i] = wins(v[i], best[i]) ? tap : winner.at[i];
          best[i] = wins(v[i], best[i]) ? v[i] : best[i];
        }
      });
      store(y + geometry.y_index(at, at.row, at.column), best);
      if (winners) put(winners + geometry.winner_index(at, at.row, at.column), winner);
    }
  };
  constexpr Column column(std::uint32_t first) const {
    return {geometry, prologue_lanes<w>(prologue, first), x, y, winners, first};
  }
};

/// dy + dy2, where there is one.
template <class T, int w>
struct PooledGradient {
  const T *dy, *dy2;
  constexpr Lanes<w> operator()(std::size_t at) const {
    auto gradient = load<w>(dy + at);
    if (!dy2) return gradient;
    const auto more = load<w>(dy2 + at);
    for (int i = 0; i < w; ++i) gradient[i] += more[i];
    return gradient;
  }
};

template <class T, int w>
constexpr PooledGradient<T, w> pooled_gradient(const MaxPoolBackwardOperands& o) {
  return {static_cast<const T*>(o.dy), static_cast<const T*>(o.dy2)};
}

/// The gradient of a pixel, from the winners that forward has left.
template <class T, int w>
struct MaxPoolPixel {
  using Type = T;
  static constexpr int width = w;
  PoolGeometry<w> geometry;
  PooledGradient<T, w> gradient_of;
  const std::uint8_t* winners;
  std::uint32_t channel;

  constexpr MaxPoolPixel(const PoolGeometry<w>& pool, const MaxPoolBackwardOperands& o,
                         std::uint32_t first)
      : geometry(pool), gradient_of(pooled_gradient<T, w>(o)), winners(o.winners), channel(first) {}
  static std::size_t items(const PoolOperands& o) { return o.x_shape.pixels(); }

  /// Calls f(index, gradient).
  template <class F>
  constexpr void for_each_gradient(std::uint32_t pixel, F f) const {
    const auto at = geometry.place(pixel, channel, geometry.rows.image, geometry.columns.image);
    Lanes<w> sum{};
    geometry.for_each_window(at.row, at.column, [&](int row, int column) {
      const auto winner = get<w>(winners + geometry.winner_index(at, row, column));
      const auto gradient = gradient_of(geometry.y_index(at, row, column));
      const int tap = geometry.tap(row, column, at.row, at.column);
      for (int i = 0; i < w; ++i) sum[i] += winner.at[i] == tap ? gradient[i] : 0;
    });
    f(geometry.x_index(at, at.row, at.column), sum);
  }
};

/// 2 x 2 pixels whose gradients one thread computes, because they share windows.
template <class T, int w>
struct PixelTile {
  using Type = T;
  using Place = typename PoolGeometry<w>::Place;
  static constexpr int width = w;
  static constexpr int side = 2, pixels = side * side;
  PoolGeometry<w> geometry;
  PooledGradient<T, w> gradient_of;
  std::uint32_t channel;

  constexpr PixelTile(const PoolGeometry<w>& pool, const MaxPoolBackwardOperands& o,
                      std::uint32_t first)
      : geometry(pool), gradient_of(pooled_gradient<T, w>(o)), channel(first) {}
  static std::size_t items(const PoolOperands& o) {
    return divide_up(o.x_shape.height, side) * divide_up(o.x_shape.width, side) * o.x_shape.batch;
  }

 protected:
  /// The first pixel of a tile.
  constexpr Place place(std::uint32_t tile) const {
    Place at = geometry.place(tile, channel, (geometry.rows.image + side - 1) / side,
                              (geometry.columns.image + side - 1) / side);
    at.row *= side;
    at.column *= side;
    return at;
  }
  /// Calls f(number, row, column) for each pixel of the tile that is in the image.
  template <class F>
  constexpr void for_each_pixel(const Place& at, F f) const {
    for (int p = 0; p < pixels; ++p) {
      const int row = at.row + p / side, column = at.column + p % side;
      if (row < geometry.rows.image && column < geometry.columns.image) f(p, row, column);
    }
  }
};

/// From the winners that forward has left, where two windows an axis cover a tile at most: nothing
/// that is loaded waits for another load. Each pixel's windows are added in row order, as by
/// MaxPoolPixel.
template <class T, int w>
struct MaxPoolWonTile : PixelTile<T, w> {
  using Base = PixelTile<T, w>;
  using Base::geometry, Base::side, Base::pixels;
  /// Eight 16-bit lanes and sums took 158 registers, and so a block of 256 threads was alone; two
  /// are 1.4 times as fast on an H200. Three leave too few registers.
  static constexpr unsigned least_blocks = 2;
  const std::uint8_t* winners;

  constexpr MaxPoolWonTile(const PoolGeometry<w>& pool, const MaxPoolBackwardOperands& o,
                           std::uint32_t first)
      : Base(pool, o, first), winners(o.winners) {}
  static bool fits(const Window& window) {
    return window.height + side - 1 <= 2 * window.stride_y &&
           window.width + side - 1 <= 2 * window.stride_x;
  }

  /// Calls f(index, gradient) for each pixel of the tile that is in the image.
  template <class F>
  constexpr void for_each_gradient(std::uint32_t tile, F f) const {
    const Axis &rows = geometry.rows, &columns = geometry.columns;
    const auto at = this->place(tile);
    const int row = rows.first_window(at.row), column = columns.first_window(at.column);
    const int end_row = rows.end_window(at.row + side - 1);
    const int end_column = columns.end_window(at.column + side - 1);
    Pack<std::uint8_t, w> winner[pixels] = {};
    Lanes<w> gradient[pixels] = {};
    for (int k = 0; k < pixels; ++k)
      if (row + k / side < end_row && column + k % side < end_column) {
        winner[k] =
            get_constant<w>(winners + geometry.winner_index(at, row + k / side, column + k % side));
        gradient[k] = this->gradient_of(geometry.y_index(at, row + k / side, column + k % side));
      }
    this->for_each_pixel(at, [&](int, int y, int x) {
      Lanes<w> sum{};
      for (int k = 0; k < pixels; ++k) {
        const int tap = geometry.tap(row + k / side, column + k % side, y, x);
        for (int i = 0; i < w; ++i) sum[i] += winner[k].at[i] == tap ? gradient[k][i] : 0;
      }
      f(geometry.x_index(at, y, x), sum);
    });
  }
};

/// Without winners: the search for each window's maximum is shared, too. No y is compared with: the
/// compiler may round what it makes of x in another way here.
template <class T, int w>
struct MaxPoolTile : PixelTile<T, w> {
  using Base = PixelTile<T, w>;
  using Base::geometry, Base::side, Base::pixels;
  PrologueLanes<w> prologue;
  const T* x;

  constexpr MaxPoolTile(const PoolGeometry<w>& pool, const MaxPoolBackwardOperands& o,
                        std::uint32_t first)
      : Base(pool, o, first),
        prologue(prologue_lanes<w>(o.prologue, first)),
        x(static_cast<const T*>(o.x)) {}

  /// Calls f(index, gradient) for each pixel of the tile that is in the image.
  template <class F>
  constexpr void for_each_gradient(std::uint32_t tile, F f) const {
    const Axis &rows = geometry.rows, &columns = geometry.columns;
    const auto at = this->place(tile);
    Lanes<w> sums[pixels] = {};
    for (int row = rows.first_window(at.row); row < rows.end_window(at.row + side - 1); ++row)
      for (int column = columns.first_window(at.column);
           column < columns.end_window(at.column + side - 1); ++column)
        hand_out(at, row, column, sums);
    this->for_each_pixel(
        at, [&](int p, int row, int column) { f(geometry.x_index(at, row, column), sums[p]); });
  }

 private:
  using Place = typename Base::Place;

  // Adds the gradient of one window to the pixel of the tile that won it, if one did.
  constexpr void hand_out(const Place& at, int row, int column, Lanes<w>* sums) const {
    Lanes<w> best{};
    int winner[w] = {};
    for (int i = 0; i < w; ++i) best[i] = lowest, winner[i] = pixels;
    geometry.for_each_tap(row, column, [&](int y, int x) {
      const auto v = prologue(load_constant<w>(this->x + geometry.x_index(at, y, x)));
      const int pixel = in_tile(y - at.row, x - at.column);
      for (int i = 0; i < w; ++i) {
        winner[i] = wins(v[i], best[i]) ? pixel : winner[i];
        best[i] = wins(v[i], best[i]) ? v[i] : best[i];
      }
    });
    const auto gradient = this->gradient_of(geometry.y_index(at, row, column));
    for (int p = 0; p < pixels; ++p)
      for (int i = 0; i < w; ++i) sums[p][i] += winner[i] == p ? gradient[i] : 0;
  }
  static constexpr int in_tile(int row, int column) {
    const bool inside = row >= 0 && row < side && column >= 0 && column < side;
    return inside ? row * side + column : pixels;
  }
};

/// `Pool`: MaxPoolPixel, MaxPoolWonTile or MaxPoolTile.
template <class Pool>
struct MaxPoolBackwardTerm {
  using T = typename Pool::Type;
  static constexpr int width = Pool::width;
  PoolGeometry<width> geometry;
  MaxPoolBackwardOperands o;

  struct Column {
    Pool pool;
    T* dx;
    constexpr void run(std::uint32_t item) const {
      pool.for_each_gradient(
          item, [&](std::size_t at, const Lanes<width>& gradient) { store(dx + at, gradient); });
    }
  };
  constexpr Column column(std::uint32_t first) const {
    return {Pool(geometry, o, first), static_cast<T*>(o.dx)};
  }
};

/// What BackwardTerm does of a gradient in memory, of the one that the pool hands out.
template <class Pool>
struct MaxPoolReduceTerm {
  using T = typename Pool::Type;
  static constexpr int values = 2, width = Pool::width, w = width;
  static constexpr unsigned least_blocks = kernels::least_blocks<Pool>;
  PoolGeometry<w> geometry;
  MaxPoolBackwardOperands o;
  BatchNormBackwardReduceOperands norm;

  struct Column {
    Pool pool;
    const T *skip, *x, *y;
    T* g;
    Lanes<w> scale, bias, mean;
    bool relu;
    constexpr void add(std::uint32_t tile, Lanes<w>* sums) const {
      pool.for_each_gradient(tile, [&](std::size_t at, Lanes<w> gradient) {
        const auto input = load_constant<w>(x + at);
        if (skip) {
          const auto more = load_constant<w>(skip + at);
          for (int i = 0; i < w; ++i) gradient[i] += more[i];
        }
        if (relu) mask(at, input, gradient);
        store(g + at, gradient);
        for (int i = 0; i < w; ++i) {
          sums[0][i] += gradient[i];
          sums[1][i] += gradient[i] * (input[i] - mean[i]);
        }
      });
    }
    constexpr void mask(std::size_t at, const Lanes<w>& input, Lanes<w>& gradient) const {
      Lanes<w> output{};
      if (y)
        output = load_constant<w>(y + at);
      else
        for (int i = 0; i < w; ++i) output[i] = input[i] * scale[i] + bias[i];
      for (int i = 0; i < w; ++i) gradient[i] = output[i] > 0 ? gradient[i] : 0;
    }
  };
  constexpr Column column(std::uint32_t first) const {
    return {Pool(geometry, o, first),        static_cast<const T*>(norm.skip),
            static_cast<const T*>(norm.x),   static_cast<const T*>(norm.y),
            static_cast<T*>(norm.g),         load_or<w>(norm.scale, first, 1),
            load_or<w>(norm.bias, first, 0), load_or<w>(norm.mean, first, 0),
            norm.then == Activation::relu};
  }
};

template <class Queue>
void max_pool_forward(const MaxPoolForwardOperands& o, Queue& queue) {
  with_type_and_width(o.pool.element, is_wide_pool(o.pool, {o.x, o.y}), [&]<class T>(T, auto w) {
    const MaxPoolForwardTerm<T, w> term{PoolGeometry<w>(o.pool), o.prologue,
                                        static_cast<const T*>(o.x), static_cast<T*>(o.y),
                                        o.winners};
    map_pixels(o.pool.y_shape.pixels(), o.pool.y_shape.channels, term, queue);
  });
}

/// Calls use(term type's Pool) for what a backward pass is given.
template <class Use>
void with_pool(const MaxPoolBackwardOperands& o, bool wide, Use use) {
  with_type_and_width(o.pool.element, wide, [&]<class T>(T, auto w) {
    if (o.winners && MaxPoolWonTile<T, w>::fits(o.pool.window))
      use(std::type_identity<MaxPoolWonTile<T, w>>());
    else if (o.winners)
      use(std::type_identity<MaxPoolPixel<T, w>>());
    else
      use(std::type_identity<MaxPoolTile<T, w>>());
  });
}

template <class Queue>
void max_pool_backward(const MaxPoolBackwardOperands& o, Queue& queue) {
  const bool wide = is_wide_pool(o.pool, {o.x, o.dy, o.dy2, o.dx});
  with_pool(o, wide, [&]<class Pool>(std::type_identity<Pool>) {
    const MaxPoolBackwardTerm<Pool> term{PoolGeometry<Pool::width>(o.pool), o};
    map_pixels(Pool::items(o.pool), o.pool.x_shape.channels, term, queue);
  });
}

template <class Queue>
void max_pool_backward_reduce(const MaxPoolBackwardOperands& o,
                              const BatchNormBackwardReduceOperands& norm, Queue& queue) {
  const bool wide = is_wide_pool(o.pool, {o.x, o.dy, o.dy2, norm.skip, norm.x, norm.y, norm.g});
  with_pool(o, wide, [&]<class Pool>(std::type_identity<Pool>) {
    const MaxPoolReduceTerm<Pool> term{PoolGeometry<Pool::width>(o.pool), o, norm};
    sum_pixels(Pool::items(o.pool), o.pool.x_shape.channels, term, BackwardCoefficients{norm},
               norm.workspace, queue);
  });
}

/// Bytes, with winners or without.
inline std::size_t max_pool_workspace(const PoolOperands& o) {
  return sums_workspace(o.x_shape.pixels(), o.x_shape.channels, 2);
}

}  // namespace ringtrain::compute::cuda::kernels::work
