#pragma once
#include <algorithm>
#include <cstddef>

#include "compute/onednn/isa.hpp"
#include "compute/onednn/tensor.hpp"

namespace ringtrain::onednn {

// The kernels of BatchNorm over one plane: one block of channels of one image.

// Pixels whose block of channels fits the first-level cache, so that the second look at it is free.
inline constexpr std::size_t chunk_pixels = 256;

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

// Mean and sum of squared distances to it of each lane of one plane. Chunks are combined as in
// Chan, Golub and LeVeque 1979, which loses nothing when the mean is far from zero.
template <int B>
struct PlaneMoments {
  [[gnu::always_inline]] static inline void run(const float* x, std::size_t pixels,
                                                double* result) {
    double *mean = result, *squares = result + B;
    std::fill_n(result, 2 * B, 0.0);
    for (std::size_t first = 0; first < pixels; first += chunk_pixels) {
      const std::size_t count = std::min(chunk_pixels, pixels - first);
      const float* chunk = x + first * B;
      Vec<B> a{}, b{};
      std::size_t p = 0;
      for (; p + 1 < count; p += 2) {
        a += load<B>(chunk + p * B);
        b += load<B>(chunk + (p + 1) * B);
      }
      if (p < count) a += load<B>(chunk + p * B);
      const Vec<B> centre = (a + b) / static_cast<float>(count);
      Vec<B> rest{}, distances{};
      for (p = 0; p < count; ++p) {
        const Vec<B> d = load<B>(chunk + p * B) - centre;
        rest += d;
        distances += d * d;
      }
      const double n = static_cast<double>(count), before = static_cast<double>(first);
      for (int lane = 0; lane < B; ++lane) {
        const double off = rest[lane] / n, chunk_mean = centre[lane] + off;
        const double delta = chunk_mean - mean[lane];
        squares[lane] +=
            distances[lane] - off * rest[lane] + delta * delta * before * n / (before + n);
        mean[lane] += delta * n / (before + n);
      }
    }
  }
};

template <int B>
struct Apply {
  [[gnu::always_inline]] static inline void run(const float* x, const float* residual, float* y,
                                                std::size_t pixels, const Moments& m,
                                                std::size_t channel, bool rectify) {
    const Vec<B> mean = load<B>(m.mean + channel), scale = load<B>(m.scale + channel),
                 shift = load<B>(m.shift + channel);
    for (std::size_t p = 0; p < pixels * B; p += B) {
      Vec<B> v = (load<B>(x + p) - mean) * scale + shift;
      if (residual) v += load<B>(residual + p);
      store<B>(y + p, rectify ? relu<B>(v) : v);
    }
  }
};

// What the backward kernels read of one plane.
struct Upstream {
  const float *x, *y, *dy, *dy2;
  bool masked;
};

// The gradient of what the forward step added up: dy + dy2, zero where ReLU was.
template <int B>
[[gnu::always_inline]] inline Vec<B> upstream(const Upstream& u, std::size_t p, Vec<B> distance,
                                              Vec<B> scale, Vec<B> shift) {
  Vec<B> g = load<B>(u.dy + p);
  if (u.dy2) g += load<B>(u.dy2 + p);
  if (!u.masked) return g;
  const Vec<B> y = u.y ? load<B>(u.y + p) : distance * scale + shift;
  return y > 0 ? g : Vec<B>{};
}

// Sums of g and of g * (x - mean) over one plane; writes g where it is asked for.
template <int B>
struct PlaneSums {
  [[gnu::always_inline]] static inline void run(const Upstream& u, float* dresidual,
                                                std::size_t pixels, const Moments& m,
                                                std::size_t channel, double* result) {
    const Vec<B> mean = load<B>(m.mean + channel), scale = load<B>(m.scale + channel),
                 shift = load<B>(m.shift + channel);
    std::fill_n(result, 2 * B, 0.0);
    for (std::size_t first = 0; first < pixels; first += chunk_pixels) {
      const std::size_t end = std::min(first + chunk_pixels, pixels);
      Vec<B> sum{}, dot{};
      for (std::size_t p = first * B; p < end * B; p += B) {
        const Vec<B> distance = load<B>(u.x + p) - mean;
        const Vec<B> g = upstream<B>(u, p, distance, scale, shift);
        if (dresidual) store<B>(dresidual + p, g);
        sum += g;
        dot += g * distance;
      }
      for (int lane = 0; lane < B; ++lane) {
        result[lane] += sum[lane];
        result[B + lane] += dot[lane];
      }
    }
  }
};

// dx = scale * (g - mean of g - (x - mean) * slope)
template <int B>
struct InputGradient {
  [[gnu::always_inline]] static inline void run(const Upstream& u, float* dx, std::size_t pixels,
                                                const Moments& m, std::size_t channel,
                                                const float* mean_g, const float* slope) {
    const Vec<B> mean = load<B>(m.mean + channel), scale = load<B>(m.scale + channel),
                 shift = load<B>(m.shift + channel), level = load<B>(mean_g + channel),
                 tilt = load<B>(slope + channel);
    for (std::size_t p = 0; p < pixels * B; p += B) {
      const Vec<B> distance = load<B>(u.x + p) - mean;
      const Vec<B> g = upstream<B>(u, p, distance, scale, shift);
      store<B>(dx + p, (g - level - distance * tilt) * scale);
    }
  }
};

}  // namespace ringtrain::onednn
