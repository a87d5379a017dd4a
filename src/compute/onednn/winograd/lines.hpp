#pragma once
#include <utility>

#include "compute/onednn/winograd/kernels.hpp"

namespace ringtrain::compute::onednn {

/// The pixels of a tile along its line: those from `begin` to before `end` are inside of the image.
template <class T>
struct TileLine {
  TileLine(const Plane<T>& p, const TileGrid& grid, std::size_t tile, int pixels) {
    const auto at = grid.place(p, tile);
    const bool column = grid.height > 1;
    const int from = column ? at.y : at.x, size = column ? p.height : p.width;
    step = column ? p.row_step : p.pixel_step;
    begin = std::max(-from, 0);
    end = std::min(pixels, size - from);
    first = at.image + (column ? at.x * p.pixel_step : at.y * p.row_step);
    offset = from;
  }
  T* pixel(int i) const { return first + (offset + i) * step; }

  template <int N, int B>
  [[gnu::always_inline]] void load_line(std::size_t block, Vec<B> (&line)[N]) const {
#pragma GCC unroll 16
    for (int i = 0; i < N; ++i)
      line[i] = i >= begin && i < end ? load<B>(pixel(i) + block) : Vec<B>{};
  }

  T* first;
  std::ptrdiff_t step, offset;
  int begin, end;
};

/// As those of a SquareWindow, along rows where tiles are one result high, else along columns.
template <int R>
struct WinogradKernels<LineWindow<R>> {
  static constexpr int edge = tile_edge(R), M = tile_results;

  template <int B, class T>
  struct TransformPixels {
    [[gnu::always_inline]] static inline void run(const Plane<const T>& p, const TileGrid& grid,
                                                  std::size_t first, std::size_t count,
                                                  const Norm& prologue, const Matrices& to) {
      for (std::size_t tile = 0; tile < count; ++tile) {
        const TileLine<const T> line(p, grid, first + tile, edge);
        for (int block = 0; block < p.blocks; ++block) {
          const NormOfBlock<B> norm(prologue, std::size_t(block) * B);
          Vec<B> pixels[edge];
          line.template load_line<edge, B>(block * p.block_step, pixels);
          if (norm.any) {
#pragma GCC unroll 16
            for (int i = 0; i < edge; ++i)
              if (i >= line.begin && i < line.end) pixels[i] = norm(pixels[i]);
          }
          put(pixels, to.row(tile) + block * B, to.position_step,
              std::make_integer_sequence<int, edge / 2>());
        }
      }
    }

   private:
    using Transform = FromPixels<R>;

    template <int... Pairs>
    [[gnu::always_inline]] static inline void put(const Vec<B>* pixels, float* out,
                                                  std::size_t step,
                                                  std::integer_sequence<int, Pairs...>) {
      (put_pair_of<Pairs>(pixels, out, step), ...);
    }
    template <int Pair>
    [[gnu::always_inline]] static inline void put_pair_of(const Vec<B>* pixels, float* out,
                                                          std::size_t step) {
      Vec<B> v[2];
      Transform::template pair<Pair, B>(pixels, v);
      store<B>(out + Transform::first(Pair) * step, v[0]);
      store<B>(out + Transform::second(Pair) * step, v[1]);
    }
  };

  template <int B, class T>
  struct TransformGradients {
    [[gnu::always_inline]] static inline void run(const Plane<const T>& p, const TileGrid& grid,
                                                  std::size_t first, std::size_t count,
                                                  const Matrices& to, float* sums) {
      for (std::size_t tile = 0; tile < count; ++tile) {
        const TileLine<const T> line(p, grid, first + tile, M);
        for (int block = 0; block < p.blocks; ++block) {
          Vec<B> gradients[M], result[edge];
          line.template load_line<M, B>(block * p.block_step, gradients);
          if (sums != nullptr)
            store<B>(sums + block * B, load<B>(sums + block * B) + ((gradients[0] + gradients[1]) +
                                                                    (gradients[2] + gradients[3])));
          FromResults<R>::template run<B>(gradients, result);
          store_vectors<edge, B>(result, to.row(tile) + block * B, to.position_step);
        }
      }
    }
  };

  template <int B, class T>
  struct WriteResults {
    [[gnu::always_inline]] static inline void run(const Matrices& from, const TileGrid& grid,
                                                  std::size_t first, std::size_t count,
                                                  const Plane<T>& p, const Epilogue& epilogue) {
      for (std::size_t tile = 0; tile < count; ++tile) {
        const TileLine<T> line(p, grid, first + tile, M);
        for (int block = 0; block < p.blocks; ++block) {
          Vec<B> products[edge], results[M];
          load_vectors<edge, B>(from.row(tile) + block * B, from.position_step, products);
          ToResults<R>::template run<B>(products, results);
          const Vec<B> bias = epilogue.bias ? load<B>(epilogue.bias + block * B) : Vec<B>{};
#pragma GCC unroll 4
          for (int i = 0; i < M; ++i) {
            if (i >= line.end) continue;
            const Vec<B> v = results[i] + bias;
            store<B>(line.pixel(i) + block * p.block_step, epilogue.relu ? relu<B>(v) : v,
                     epilogue.past_caches);
          }
        }
      }
    }
  };

  template <int B, class T>
  struct TransformFilters {
    [[gnu::always_inline]] static inline void run(const float* filters, const Matrices& to,
                                                  bool past_caches) {
      for (int row = 0; row < B; ++row) {
        Vec<B> pixels[R], result[edge];
        load_vectors<R, B>(filters + row * B, B * B, pixels);
        FromFilter<R>::template run<B>(pixels, result);
        store_vectors<edge, B>(result, to.row(row), to.position_step, past_caches);
      }
    }
  };

  template <int B, class T>
  struct FilterGradients {
    [[gnu::always_inline]] static inline void run(const Matrices& from, std::size_t step, int count,
                                                  float* filters) {
      for (int row = 0; row < B; ++row) {
        Vec<B> line[edge], result[R];
        load_vectors<edge, B>(from.row(row), from.position_step, line);
        for (int other = 1; other < count; ++other) {
          Vec<B> more[edge];
          load_vectors<edge, B>(from.row(row) + other * step, from.position_step, more);
#pragma GCC unroll 16
          for (int i = 0; i < edge; ++i) line[i] += more[i];
        }
        ToFilter<R>::template run<B>(line, result);
        store_vectors<R, B>(result, filters + row * B, B * B);
      }
    }
  };
};

}  // namespace ringtrain::compute::onednn
