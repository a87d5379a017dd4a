#pragma once
#include <algorithm>
#include <cstddef>

#include "compute/onednn/isa.hpp"
#include "compute/onednn/kernels/activation.hpp"
#include "compute/onednn/tensor.hpp"

namespace ringtrain::compute::onednn {

// The kernels of BatchNorm over some pixels of one image: of one block of channels, or of several
// that lie beside each other, as where channels are last.

// Pixels whose block of channels fits the first-level cache, so that the second look at it is free.
inline constexpr std::size_t chunk_pixels = 256;
// What a kernel goes over. It takes `tile` pixels of one block and then of the next: few where a
// pixel's blocks lie beside each other, so that memory is read in its order. `work` holds two
// floats for each channel of the blocks.
struct Extent {
  std::size_t pixels, blocks, first_channel, tile;
  float* work;
};

// What the backward step needs of its forward step, by padded channel. Zero in the padding, which
// keeps it zero in every result.
struct Moments {
  Moments(const Tensor& x, float* kept)
      : channels(std::size_t(x.blocks()) * x.block),
        mean(kept),
        inverse_deviation(kept + channels),
        scale(kept + 2 * channels),
        shift(kept + 3 * channels) {}
  static std::size_t size(const Tensor& x) { return std::size_t(4) * x.blocks() * x.block; }

  std::size_t channels;
  float *mean, *inverse_deviation;
  float *scale, *shift;  // y = (x - mean) * scale + shift; scale is gamma / deviation
};

// Of one block of channels.
template <int B>
struct Lines {
  [[gnu::always_inline]] Lines(const Moments& m, std::size_t channel)
      : mean(load<B>(m.mean + channel)),
        scale(load<B>(m.scale + channel)),
        shift(load<B>(m.shift + channel)) {}
  Vec<B> mean, scale, shift;
};

// Adds `n` pixels with these moments to the moments of `n_before` pixels, as in Chan, Golub and
// LeVeque 1979. Squares are of distances to the mean.
inline void join_moments(double n, double n_before, double joining_mean, double joining_squares,
                         double& mean, double& squares) {
  const double delta = joining_mean - mean;
  squares += joining_squares + delta * delta * n_before * n / (n_before + n);
  mean += delta * n / (n_before + n);
}

// Mean and sum of squared distances to it of each lane of one block. Looks at each chunk twice,
// which loses nothing when the mean is far from zero.
template <int B, class T>
struct PixelMoments {
  [[gnu::always_inline]] static inline void run(Pixels<T> x, const Extent& e, double* result) {
    double *mean = result, *squares = result + B;
    std::fill_n(result, 2 * B, 0.0);
    for (std::size_t first = 0; first < e.pixels; first += chunk_pixels) {
      const std::size_t end = std::min(first + chunk_pixels, e.pixels);
      Vec<B> a{}, b{};
      std::size_t p = first;
      for (; p + 1 < end; p += 2) {
        a += load<B>(x.at(p));
        b += load<B>(x.at(p + 1));
      }
      if (p < end) a += load<B>(x.at(p));
      const Vec<B> centre = (a + b) / static_cast<float>(end - first);
      Vec<B> rest{}, distances{};
      for (p = first; p < end; ++p) {
        const Vec<B> d = load<B>(x.at(p)) - centre;
        rest += d;
        distances += d * d;
      }
      const double n = static_cast<double>(end - first), before = static_cast<double>(first);
      for (int lane = 0; lane < B; ++lane) {
        const double off = rest[lane] / n;
        join_moments(n, before, centre[lane] + off, distances[lane] - off * rest[lane], mean[lane],
                     squares[lane]);
      }
    }
  }
};

// The same of bf16, which is short enough for one look: distances to the first pixel of a chunk are
// exact but for fp32's rounding, and the mean is no farther from it than the numbers are from it.
template <int B>
struct PixelMoments<B, Bf16> {
  [[gnu::always_inline]] static inline void run(Pixels<Bf16> x, const Extent& e, double* result) {
    std::fill_n(result, 2 * B * e.blocks, 0.0);
    for (std::size_t first = 0; first < e.pixels; first += chunk_pixels) {
      const std::size_t end = std::min(first + chunk_pixels, e.pixels);
      std::fill_n(e.work, 2 * B * e.blocks, 0.f);
      for (std::size_t tile = first; tile < end; tile += e.tile)
        add_tile(x, x.at(first), tile, std::min(tile + e.tile, end), e);
      join(x.at(first), end - first, first, e, result);
    }
  }

 private:
  [[gnu::always_inline]] static inline void add_tile(Pixels<Bf16> x, const Bf16* origins,
                                                     std::size_t first, std::size_t end,
                                                     const Extent& e) {
    for (std::size_t c = 0; c < e.blocks * B; c += B) {
      const Vec<B> origin = load<B>(origins + c);
      Vec<B> sum = load<B>(e.work + 2 * c), squares = load<B>(e.work + 2 * c + B);
      for (std::size_t p = first; p < end; ++p) {
        const Vec<B> d = load<B>(x.at(p) + c) - origin;
        sum += d;
        squares += d * d;
      }
      store<B>(e.work + 2 * c, sum);
      store<B>(e.work + 2 * c + B, squares);
    }
  }
  [[gnu::always_inline]] static inline void join(const Bf16* origins, std::size_t pixels,
                                                 std::size_t before, const Extent& e,
                                                 double* result) {
    const double n = static_cast<double>(pixels), n_before = static_cast<double>(before);
    for (std::size_t c = 0; c < e.blocks * B; c += B)
      for (int lane = 0; lane < B; ++lane) {
        const double sum = e.work[2 * c + lane], squares = e.work[2 * c + B + lane];
        join_moments(n, n_before, origins[c + lane] + sum / n, squares - sum * sum / n,
                     result[2 * c + lane], result[2 * c + B + lane]);
      }
  }
};

// What the backward kernels read.
template <class T>
struct Upstream {
  Pixels<T> x, y, dy, dy2;
  Activation then;
};

// The gradient of what the forward step added up: dy + dy2, times the activation's slope.
// `then` is u.then, perhaps as a constant.
template <int B, Knows knows, class T>
[[gnu::always_inline]] inline Vec<B> upstream(const Upstream<T>& u, Activation then, std::size_t p,
                                              std::size_t c, Vec<B> distance,
                                              const Lines<B>& line) {
  Vec<B> g = load<B>(u.dy.at(p) + c);
  if (u.dy2) g += load<B>(u.dy2.at(p) + c);
  if (then == Activation::none) return g;
  if (u.y) return gradient_of<B, knows, T>(then, load<B>(u.y.at(p) + c), g);
  const Vec<B> before = distance * line.scale + line.shift;
  if (knows == Knows::relu || !facts_of(then).slope_of_output)
    return gradient_of<B, knows, T>(then, before, g);
  return gradient_of<B, knows, T>(then, value_of<B, knows, T>(then, before), g);
}

// Those that apply an activation, or its slope.
template <Knows knows>
struct NormKernels {
  template <int B, class T>
  struct Apply {
    [[gnu::always_inline]] static inline void run(Pixels<T> x, Pixels<T> residual, Pixels<T> y,
                                                  const Moments& m, const Extent& e,
                                                  Activation then) {
      with_constant<knows>(
          then, [&](auto f) __attribute__((always_inline)) {
            for (std::size_t first = 0; first < e.pixels; first += e.tile) {
              const std::size_t end = std::min(first + e.tile, e.pixels);
              for (std::size_t c = 0; c < e.blocks * B; c += B) {
                const Lines<B> line(m, e.first_channel + c);
                for (std::size_t p = first; p < end; ++p) {
                  Vec<B> v = (load<B>(x.at(p) + c) - line.mean) * line.scale + line.shift;
                  if (residual) v += load<B>(residual.at(p) + c);
                  store<B>(y.at(p) + c, value_of<B, knows, T>(f, v), y.past_caches);
                }
              }
            }
          });
    }
  };

  // Sums of g and of g * (x - mean); writes g where it is asked for.
  template <int B, class T>
  struct PixelSums {
    [[gnu::always_inline]] static inline void run(const Upstream<T>& u, Pixels<T> written,
                                                  const Moments& m, const Extent& e,
                                                  double* result) {
      std::fill_n(result, 2 * B * e.blocks, 0.0);
      for (std::size_t first = 0; first < e.pixels; first += chunk_pixels) {
        const std::size_t end = std::min(first + chunk_pixels, e.pixels);
        std::fill_n(e.work, 2 * B * e.blocks, 0.f);
        for (std::size_t tile = first; tile < end; tile += e.tile)
          add_tile(u, written, m, tile, std::min(tile + e.tile, end), e);
        for (std::size_t i = 0; i < 2 * B * e.blocks; ++i) result[i] += e.work[i];
      }
    }

   private:
    [[gnu::always_inline]] static inline void add_tile(const Upstream<T>& u, Pixels<T> written,
                                                       const Moments& m, std::size_t first,
                                                       std::size_t end, const Extent& e) {
      for (std::size_t c = 0; c < e.blocks * B; c += B) {
        const Lines<B> line(m, e.first_channel + c);
        Vec<B> sum = load<B>(e.work + 2 * c), dot = load<B>(e.work + 2 * c + B);
        with_constant<knows>(
            u.then, [&](auto f) __attribute__((always_inline)) {
              for (std::size_t p = first; p < end; ++p) {
                const Vec<B> distance = load<B>(u.x.at(p) + c) - line.mean;
                const Vec<B> g = upstream<B, knows>(u, f, p, c, distance, line);
                if (written) store<B>(written.at(p) + c, g, written.past_caches);
                sum += g;
                dot += g * distance;
              }
            });
        store<B>(e.work + 2 * c, sum);
        store<B>(e.work + 2 * c + B, dot);
      }
    }
  };

  // dx = scale * (g - mean of g - (x - mean) * slope)
  template <int B, class T>
  struct InputGradient {
    [[gnu::always_inline]] static inline void run(const Upstream<T>& u, Pixels<T> dx,
                                                  const Moments& m, const Extent& e,
                                                  const float* mean_g, const float* slope) {
      for (std::size_t first = 0; first < e.pixels; first += e.tile) {
        const std::size_t end = std::min(first + e.tile, e.pixels);
        for (std::size_t c = 0; c < e.blocks * B; c += B) {
          const Lines<B> line(m, e.first_channel + c);
          const Vec<B> level = load<B>(mean_g + e.first_channel + c),
                       tilt = load<B>(slope + e.first_channel + c);
          for (std::size_t p = first; p < end; ++p) {
            const Vec<B> distance = load<B>(u.x.at(p) + c) - line.mean;
            const Vec<B> g = upstream<B, knows>(u, u.then, p, c, distance, line);
            store<B>(dx.at(p) + c, (g - level - distance * tilt) * line.scale, dx.past_caches);
          }
        }
      }
    }
  };
};

/// The variant of a kernel that `then` needs.
template <class T>
auto pick_apply(Activation then, Isa isa) {
  return is_relu_or_none(then) ? pick<NormKernels<Knows::relu>::Apply, T>(isa)
                               : pick<NormKernels<Knows::all>::Apply, T>(isa);
}
template <class T>
auto pick_pixel_sums(Activation then, Isa isa) {
  return is_relu_or_none(then) ? pick<NormKernels<Knows::relu>::PixelSums, T>(isa)
                               : pick<NormKernels<Knows::all>::PixelSums, T>(isa);
}
template <class T>
auto pick_input_gradient(Activation then, Isa isa) {
  return is_relu_or_none(then) ? pick<NormKernels<Knows::relu>::InputGradient, T>(isa)
                               : pick<NormKernels<Knows::all>::InputGradient, T>(isa);
}

}  // namespace ringtrain::compute::onednn
