#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "compute/onednn/winograd/norms.hpp"
#include "compute/onednn/winograd/transforms.hpp"

namespace ringtrain::compute::onednn {

/// f(line) for the cache lines of a tile's pixels. Unless `whole`, without those that it shares
/// with the tiles above and before it. So all tiles of a batch give each of its lines at least
/// once.
template <class T, class F>
void for_each_line(const Plane<T>& p, const TileGrid& grid, std::size_t tile, bool whole,
                   const F& f) {
  constexpr std::size_t line_bytes = 64;
  const auto at = grid.place(p, tile);
  const auto first = [&](int from, int before, int shared) {
    return std::max(from + (!whole && from + before > 0 ? shared : 0), 0);
  };
  const int top = first(at.y, grid.top, grid.shared_down),
            left = first(at.x, grid.left, grid.shared_across),
            bottom = std::min(at.y + grid.height + grid.shared_down, p.height),
            right = std::min(at.x + grid.width + grid.shared_across, p.width);
  if (left >= right) return;
  // Blocked, a row of pixels is one piece for each block; where channels are last, it is one. An
  // image of one pixel looks alike in both; Winograd takes none.
  const int pieces = p.block_step > p.pixel_step ? p.blocks : 1;
  for (int piece = 0; piece < pieces; ++piece)
    for (int y = top; y < bottom; ++y) {
      T* const row = at.image + piece * p.block_step + y * p.row_step;
      const auto end = reinterpret_cast<std::uintptr_t>(row + right * p.pixel_step);
      auto line = reinterpret_cast<std::uintptr_t>(row + left * p.pixel_step) & ~(line_bytes - 1);
      for (; line < end; line += line_bytes) f(reinterpret_cast<const char*>(line));
    }
}

/// Fetches those lines into caches: to be read where T is const, else to be written. By hand: GCC
/// leaves out calls of functions that do nothing but __builtin_prefetch(). CPUs without prefetchw
/// do nothing there.
template <class T>
void prefetch_pixels(const Plane<T>& p, const TileGrid& grid, std::size_t tile, bool whole) {
  for_each_line(p, grid, tile, whole, [](const char* line) {
    if constexpr (std::is_const_v<T>)
      asm volatile("prefetcht1 %0" : : "m"(*line));
    else
      asm volatile("prefetchw %0" : : "m"(*line));
  });
}

/// Transformed tiles or filters: for each position a matrix of `row_step` floats a row.
struct Matrices {
  float* first;
  std::size_t position_step, row_step;

  float* row(std::size_t i) const { return first + i * row_step; }
  Matrices from_row(std::size_t i) const { return {row(i), position_step, row_step}; }
};

/// N vectors that lie `step` floats apart.
template <int N, int B>
[[gnu::always_inline]] inline void load_vectors(const float* from, std::size_t step,
                                                Vec<B> (&line)[N]) {
#pragma GCC unroll 16
  for (int i = 0; i < N; ++i) line[i] = load<B>(from + i * step);
}
template <int N, int B>
[[gnu::always_inline]] inline void store_vectors(const Vec<B> (&line)[N], float* to,
                                                 std::size_t step, bool past_caches = false) {
#pragma GCC unroll 16
  for (int i = 0; i < N; ++i) store<B>(to + i * step, line[i], past_caches);
}

/// N x N vectors that lie `row_step` and `step` floats apart.
template <int N, int B>
[[gnu::always_inline]] inline void load_square(const float* from, std::size_t row_step,
                                               std::size_t step, Vec<B> (&square)[N][N]) {
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) load_vectors<N, B>(from + i * row_step, step, square[i]);
}
template <int N, int B>
[[gnu::always_inline]] inline void store_square(const Vec<B> (&square)[N][N], float* to,
                                                std::size_t row_step, std::size_t step,
                                                bool past_caches = false) {
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) store_vectors<N, B>(square[i], to + i * row_step, step, past_caches);
}

/// A tile's N x N pixels, of which some may lie outside of its image: those are zero.
template <int N, int B, class T>
class PixelSquare {
 public:
  [[gnu::always_inline]] PixelSquare(const Plane<const T>& p, const TileGrid::Place<const T>& at)
      : plane_(p),
        at_(at),
        top_(-at.y),
        left_(-at.x),
        bottom_(p.height - at.y),
        right_(p.width - at.x),
        inside_(top_ <= 0 && left_ <= 0 && bottom_ >= N && right_ >= N) {}

  /// Row `i` of a block of channels.
  [[gnu::always_inline]] void load_row(int block, int i, Vec<B> (&row)[N]) const {
    if (inside_) {
#pragma GCC unroll 8
      for (int j = 0; j < N; ++j) row[j] = load<B>(pixel(block, i, j));
      return;
    }
    const bool any = i >= top_ && i < bottom_;
#pragma GCC unroll 8
    for (int j = 0; j < N; ++j)
      row[j] = any && j >= left_ && j < right_ ? load<B>(pixel(block, i, j)) : Vec<B>{};
  }
  /// What `norm` makes of it; what is outside stays zero.
  [[gnu::always_inline]] void load_row(int block, int i, const NormOfBlock<B>& norm,
                                       Vec<B> (&row)[N]) const {
    load_row(block, i, row);
    if (!norm.any || i < top_ || i >= bottom_) return;
#pragma GCC unroll 8
    for (int j = 0; j < N; ++j)
      if (inside_ || (j >= left_ && j < right_)) row[j] = norm(row[j]);
  }

 private:
  const T* pixel(int block, int i, int j) const {
    return at_.image + block * plane_.block_step + std::size_t(at_.y + i) * plane_.row_step +
           std::size_t(at_.x + j) * plane_.pixel_step;
  }

  const Plane<const T>& plane_;
  const TileGrid::Place<const T>& at_;
  const int top_, left_, bottom_, right_;
  const bool inside_;
};

/// A position's matrix product, of `rows` rows and `blocks` blocks of columns: c = a b, or c += a
/// b. a's element (row, d) is a[row * a_row + d * a_depth]. Rows come in whole groups.
struct PositionProduct {
  const float* a;
  std::size_t a_row, a_depth;
  const float* b;
  std::size_t b_row;  // 0: two blocks of columns lie beside each other, then the next two
  float* c;
  std::size_t c_row;
  int rows, depth, blocks;
  bool add;
  bool prefetch = false;     // b, which lies as b_row 0 says, comes from memory
  bool past_caches = false;  // how c is stored
};

/// A position's matrix product; T is float.
template <int B, class T>
struct MultiplyPosition {
  static constexpr int group = B == 16 ? 8 : 4;  // twice as many sums stay in registers

  [[gnu::always_inline]] static inline void run(const PositionProduct& p) {
    for (int block = 0; block < p.blocks; block += 2) {
      const bool two = block + 1 < p.blocks;
      const float* b = p.b + (p.b_row ? block * B : std::size_t(block) * B * p.depth);
      const std::size_t b_row = p.b_row ? p.b_row : (two ? 2 * B : B);
      for (int row = 0; row < p.rows; row += group) {
        if (p.prefetch) prefetch_next(p, row, block, b);
        two ? tile<2>(p, row, block, b, b_row) : tile<1>(p, row, block, b, b_row);
      }
    }
  }

 private:
  // A share of the next one or two blocks of columns, while this group of rows is multiplied.
  [[gnu::always_inline]] static inline void prefetch_next(const PositionProduct& p, int row,
                                                          int block, const float* b) {
    const std::size_t step = 2 * B * p.depth, left = std::size_t(p.blocks - block) * B * p.depth;
    if (left <= step) return;
    const float* const next = b + step;
    const std::size_t all = std::min(step, left - step);
    for (std::size_t i = all * row / p.rows / 16 * 16; i < all * (row + group) / p.rows; i += 16)
      asm volatile("prefetcht1 %0" : : "m"(next[i]));
  }
  template <int W>
  [[gnu::always_inline]] static inline void tile(const PositionProduct& p, int row, int block,
                                                 const float* b, std::size_t b_row) {
    const std::size_t a_row = p.a_row, a_depth = p.a_depth, c_row = p.c_row;
    const float* a = p.a + row * a_row;
    float* c = p.c + row * c_row + block * B;
    Vec<B> sum[group][W];
#pragma GCC unroll 8
    for (int i = 0; i < group; ++i)
#pragma GCC unroll 2
      for (int w = 0; w < W; ++w) sum[i][w] = Vec<B>{};
    for (int d = 0; d < p.depth; ++d, a += a_depth, b += b_row) {
      Vec<B> columns[W];
#pragma GCC unroll 2
      for (int w = 0; w < W; ++w) columns[w] = load<B>(b + w * B);
#pragma GCC unroll 8
      for (int i = 0; i < group; ++i)
#pragma GCC unroll 2
        for (int w = 0; w < W; ++w) sum[i][w] += a[i * a_row] * columns[w];
    }
#pragma GCC unroll 8
    for (int i = 0; i < group; ++i)
#pragma GCC unroll 2
      for (int w = 0; w < W; ++w) {
        float* to = c + i * c_row + w * B;
        // Sums of rounds' sums: one chain over all tiles would round much more.
        store<B>(to, p.add ? load<B>(to) + sum[i][w] : sum[i][w], p.past_caches);
      }
  }
};

/// What follows a convolution's sums.
struct Epilogue {
  const float* bias;  // null: none
  bool relu;
  bool past_caches;  // how results are stored
};

/// The kernels of a SquareWindow or LineWindow. Tiles are `count` ones from `first` on; `to` and
/// `from` begin with the row of the first.
template <class W>
struct WinogradKernels;

template <int R>
struct WinogradKernels<SquareWindow<R>> {
  static constexpr int edge = tile_edge(R), M = tile_results;

  /// Pixels to rows of `to`, a row a tile.
  template <int B, class T>
  struct TransformPixels {
    [[gnu::always_inline]] static inline void run(const Plane<const T>& p, const TileGrid& grid,
                                                  std::size_t first, std::size_t count,
                                                  const Norm& prologue, const Matrices& to) {
      for (std::size_t tile = 0; tile < count; ++tile) {
        const auto at = grid.place(p, first + tile);
        const PixelSquare<edge, B, T> pixels(p, at);
        for (int block = 0; block < p.blocks; ++block) {
          const NormOfBlock<B> norm(prologue, std::size_t(block) * B);
          // Transformed rows go through memory: as vectors, all would not stay in registers.
          alignas(64) float work[edge * edge * B];
          for (int i = 0; i < edge; ++i) {
            Vec<B> row[edge];
            pixels.load_row(block, i, norm, row);
            transform_line(row, work + i * B, edge * B);
          }
          float* out = to.row(tile) + block * B;
          for (int j = 0; j < edge; ++j) {
            Vec<B> column[edge];
            load_vectors<edge, B>(work + j * edge * B, B, column);
            transform_line(column, out + j * to.position_step, edge * to.position_step);
          }
        }
      }
    }

   private:
    using Transform = FromPixels<R>;
    // Values lie `step` floats apart.
    [[gnu::always_inline]] static inline void transform_line(const Vec<B>* d, float* out,
                                                             std::size_t step) {
      put<0>(d, out, step);
      put<1>(d, out, step);
      put<2>(d, out, step);
      if constexpr (R == 5) put<3>(d, out, step);
    }
    template <int Pair>
    [[gnu::always_inline]] static inline void put(const Vec<B>* d, float* out, std::size_t step) {
      Vec<B> v[2];
      Transform::template pair<Pair, B>(d, v);
      store<B>(out + Transform::first(Pair) * step, v[0]);
      store<B>(out + Transform::second(Pair) * step, v[1]);
    }
  };

  /// Gradients of results to rows of `to`. Adds each channel's to `sums`, unless that is null.
  template <int B, class T>
  struct TransformGradients {
    [[gnu::always_inline]] static inline void run(const Plane<const T>& p, const TileGrid& grid,
                                                  std::size_t first, std::size_t count,
                                                  const Matrices& to, float* sums) {
      for (std::size_t tile = 0; tile < count; ++tile) {
        const auto at = grid.place(p, first + tile);
        const PixelSquare<M, B, T> pixels(p, at);
        for (int block = 0; block < p.blocks; ++block) {
          Vec<B> square[M][M], result[edge][edge];
#pragma GCC unroll 4
          for (int i = 0; i < M; ++i) pixels.load_row(block, i, square[i]);
          if (sums != nullptr) {
            Vec<B> sum{};
            for (const auto& row : square) sum += (row[0] + row[1]) + (row[2] + row[3]);
            store<B>(sums + block * B, load<B>(sums + block * B) + sum);
          }
          transform_square<FromResults<R>, M, edge, B>(square, result);
          store_square<edge, B>(result, to.row(tile) + block * B, edge * to.position_step,
                                to.position_step);
        }
      }
    }
  };

  /// Rows of products back to results.
  template <int B, class T>
  struct WriteResults {
    [[gnu::always_inline]] static inline void run(const Matrices& from, const TileGrid& grid,
                                                  std::size_t first, std::size_t count,
                                                  const Plane<T>& p, const Epilogue& epilogue) {
      for (std::size_t tile = 0; tile < count; ++tile) {
        const auto at = grid.place(p, first + tile);
        const int rows = std::min(M, p.height - at.y), columns = std::min(M, p.width - at.x);
        for (int block = 0; block < p.blocks; ++block) {
          Vec<B> square[edge][edge], result[M][M];
          load_square<edge, B>(from.row(tile) + block * B, edge * from.position_step,
                               from.position_step, square);
          transform_square<ToResults<R>, edge, M, B>(square, result);
          const Vec<B> bias = epilogue.bias ? load<B>(epilogue.bias + block * B) : Vec<B>{};
          T* out = at.image + block * p.block_step + at.y * p.row_step + at.x * p.pixel_step;
#pragma GCC unroll 4
          for (int i = 0; i < M; ++i)
#pragma GCC unroll 4
            for (int j = 0; j < M; ++j) {
              if (i >= rows || j >= columns) continue;
              const Vec<B> v = result[i][j] + bias;
              store<B>(out + i * p.row_step + j * p.pixel_step, epilogue.relu ? relu<B>(v) : v,
                       epilogue.past_caches);
            }
        }
      }
    }
  };

  /// One block of rows and one of columns of transformed filters. `filters`: R x R pixels, each a
  /// square of B x B floats with columns beside each other.
  template <int B, class T>
  struct TransformFilters {
    [[gnu::always_inline]] static inline void run(const float* filters, const Matrices& to,
                                                  bool past_caches) {
      for (int row = 0; row < B; ++row) {
        Vec<B> square[R][R], result[edge][edge];
        load_square<R, B>(filters + row * B, R * B * B, B * B, square);
        transform_square<FromFilter<R>, R, edge, B>(square, result);
        store_square<edge, B>(result, to.row(row), edge * to.position_step, to.position_step,
                              past_caches);
      }
    }
  };

  /// The reverse for gradients, which are sums of `count` matrices that lie `step` floats apart.
  template <int B, class T>
  struct FilterGradients {
    [[gnu::always_inline]] static inline void run(const Matrices& from, std::size_t step, int count,
                                                  float* filters) {
      for (int row = 0; row < B; ++row) {
        Vec<B> square[edge][edge], result[R][R];
        load_square<edge, B>(from.row(row), edge * from.position_step, from.position_step, square);
        for (int other = 1; other < count; ++other) {
          Vec<B> more[edge][edge];
          load_square<edge, B>(from.row(row) + other * step, edge * from.position_step,
                               from.position_step, more);
#pragma GCC unroll 64
          for (int i = 0; i < edge * edge; ++i)
            square[i / edge][i % edge] += more[i / edge][i % edge];
        }
        transform_square<ToFilter<R>, edge, R, B>(square, result);
        store_square<R, B>(result, filters + row * B, R * B * B, B * B);
      }
    }
  };
};

}  // namespace ringtrain::compute::onednn
