#pragma once
#include <algorithm>
#include <cstddef>

#include "compute/onednn/isa.hpp"

namespace ringtrain::compute::onednn {

/// Where the pixels of a batch lie, in elements.
template <class T>
struct Plane {
  T* data;
  std::size_t image_step, row_step, pixel_step, block_step;
  int height, width, blocks;
};

/// How images are cut into tiles of `height` x `width` results. The first begins `top` and `left`
/// pixels before its image. A tile shares `shared_down` rows of pixels with the tile below it, and
/// `shared_across` columns with the next one.
struct TileGrid {
  int height, width, down, across, top, left, shared_down, shared_across;
  std::size_t tiles;  // of the batch

  /// The image of a tile and its first pixel, which may lie outside.
  template <class T>
  struct Place {
    T* image;
    int y, x;
  };
  template <class T>
  Place<T> place(const Plane<T>& p, std::size_t tile) const {
    const std::size_t each = std::size_t(down) * across, in_image = tile % each;
    return {p.data + tile / each * p.image_step, static_cast<int>(in_image / across) * height - top,
            static_cast<int>(in_image % across) * width - left};
  }
};

/// A BatchNorm, by channel: (v - mean) * scale + shift, and ReLU where asked.
struct Norm {
  const float* mean = nullptr;  // null: none
  const float *scale = nullptr, *shift = nullptr;
  bool relu = false;
};
template <int B>
struct NormOfBlock {
  [[gnu::always_inline]] NormOfBlock(const Norm& n, std::size_t channel)
      : any(n.mean != nullptr), relu(n.relu) {
    if (!any) return;
    mean = load<B>(n.mean + channel);
    scale = load<B>(n.scale + channel);
    shift = load<B>(n.shift + channel);
  }
  [[gnu::always_inline]] Vec<B> before_relu(Vec<B> v) const { return (v - mean) * scale + shift; }
  [[gnu::always_inline]] Vec<B> operator()(Vec<B> v) const {
    const Vec<B> y = before_relu(v);
    return relu ? onednn::relu<B>(y) : y;
  }

  bool any, relu;
  Vec<B> mean{}, scale{}, shift{};
};

/// What of a BatchNorm follows a convolution's results. Without a norm their distances to an origin
/// are summed up, and the squares of these: sums of squares lose what is far from zero. With one
/// they are dy of what it makes of `x`: they become g, and sums are of g
/// and of g * (x - mean), as in BatchNormSums.
template <class T>
struct NormBehind {
  Norm norm;
  Plane<const T> x, y, skip;  // without data where there is none
};

/// Adds what some tiles have to `sums`: for each block of channels B and B of them, and B origins,
/// which are the first result where the tiles begin a group.
template <int B, class T>
struct SumTiles {
  [[gnu::always_inline]] static inline void run(const Plane<T>& p, const TileGrid& grid,
                                                std::size_t first, std::size_t count, bool begin,
                                                const NormBehind<T>& behind, float* sums) {
    for (std::size_t tile = first; tile < first + count; ++tile)
      for (int block = 0; block < p.blocks; ++block) {
        const NormOfBlock<B> norm(behind.norm, std::size_t(block) * B);
        float* const to = sums + block * 3 * B;
        const bool fresh = begin && tile == first;
        Sums s{};
        if (!fresh) s = {load<B>(to), load<B>(to + B)};
        const Place<T> results(p, grid, tile, block);
        if (!norm.any) {
          const Vec<B> origin = fresh ? results.at(0, 0) : load<B>(to + 2 * B);
          if (fresh) store<B>(to + 2 * B, origin);
          results.for_each([&](T* at, std::size_t, std::size_t) [[gnu::always_inline]] {
            const Vec<B> distance = load<B>(at) - origin;
            s.first += distance;
            s.second += distance * distance;
          });
        } else if (behind.skip.data) {
          mask<true>(behind, grid, tile, block, norm, results, s);
        } else {
          mask<false>(behind, grid, tile, block, norm, results, s);
        }
        store<B>(to, s.first);
        store<B>(to + B, s.second);
      }
  }

 private:
  struct Sums {
    Vec<B> first, second;
  };
  enum class Mask { none, of_x, of_y };

  // A tile's pixels of one block inside of the image.
  template <class U>
  struct Place {
    [[gnu::always_inline]] Place(const Plane<U>& p, const TileGrid& grid, std::size_t tile,
                                 int block)
        : row_step(p.row_step), pixel_step(p.pixel_step) {
      const auto at = grid.place(p, tile);
      rows = std::min(grid.height, p.height - at.y);
      columns = std::min(grid.width, p.width - at.x);
      first = at.image + block * p.block_step + at.y * row_step + at.x * pixel_step;
    }
    template <class F>
    [[gnu::always_inline]] void for_each(const F& f) const {
      for (int i = 0; i < rows; ++i)
        for (int j = 0; j < columns; ++j) f(first + i * row_step + j * pixel_step, i, j);
    }
    [[gnu::always_inline]] Vec<B> at(std::size_t i, std::size_t j) const {
      return load<B>(first + i * row_step + j * pixel_step);
    }
    U* first;
    std::size_t row_step, pixel_step;
    int rows, columns;
  };

  template <bool Skips>
  [[gnu::always_inline]] static inline void mask(const NormBehind<T>& behind, const TileGrid& grid,
                                                 std::size_t tile, int block,
                                                 const NormOfBlock<B>& norm,
                                                 const Place<T>& results, Sums& s) {
    if (!norm.relu)
      add<Skips, Mask::none>(behind, grid, tile, block, norm, results, s);
    else if (behind.y.data)
      add<Skips, Mask::of_y>(behind, grid, tile, block, norm, results, s);
    else
      add<Skips, Mask::of_x>(behind, grid, tile, block, norm, results, s);
  }
  template <bool Skips, Mask Of>
  [[gnu::always_inline]] static inline void add(const NormBehind<T>& behind, const TileGrid& grid,
                                                std::size_t tile, int block,
                                                const NormOfBlock<B>& norm, const Place<T>& results,
                                                Sums& s) {
    using Read = Place<const T>;
    const Read xs(behind.x, grid, tile, block),
        none = xs, ys = Of == Mask::of_y ? Read(behind.y, grid, tile, block) : none,
        skips = Skips ? Read(behind.skip, grid, tile, block) : none;
    results.for_each([&](T* at, std::size_t i, std::size_t j) [[gnu::always_inline]] {
      Vec<B> g = load<B>(at);
      const Vec<B> distance = xs.at(i, j) - norm.mean;
      if constexpr (Skips) g += skips.at(i, j);
      if constexpr (Of != Mask::none) {
        const Vec<B> y = Of == Mask::of_y ? ys.at(i, j) : distance * norm.scale + norm.shift;
        g = y > 0 ? g : Vec<B>{};
      }
      if constexpr (Skips || Of != Mask::none) store<B>(at, g);
      s.first += g;
      s.second += g * distance;
    });
  }
};

}  // namespace ringtrain::compute::onednn
