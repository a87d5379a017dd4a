#include <algorithm>
#include <cmath>

#include "compute/onednn/parallel.hpp"
#include "compute/onednn/plan.hpp"

namespace ringtrain::onednn {
namespace {

// Pixels whose block of channels fits the first-level cache, so that the second look at it is free.
constexpr std::size_t chunk_pixels = 256;

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

// One BatchNorm's sizes, and the walk over its planes.
struct Geometry {
  Geometry(const Tensor& x, Planner& planner)
      : x(x),
        channels(x.shape.channels),
        threads(planner.threads()),
        pixels(static_cast<double>(x.shape.pixels())),
        sums(planner.scratch(x.planes() * 2 * x.block * sizeof(double))) {}

  // Calls f(first element, first channel, the plane's sums) for every plane.
  template <class F>
  void for_each_plane(const Frame& frame, const F& f) const {
    double* all = sums.in<double>(frame);
    for_each_item(threads, x.planes(), [&](std::size_t plane) {
      f(plane * x.plane(), plane % x.blocks() * x.block, all + plane * 2 * x.block);
    });
  }
  // The two sums of one channel over the images: f(first, second) for each image in turn.
  template <class F>
  void for_each_image(const Frame& frame, int channel, const F& f) const {
    const double* plane = sums.in<double>(frame) + std::size_t(channel / x.block) * 2 * x.block;
    for (int n = 0; n < x.shape.batch; ++n, plane += std::size_t(x.blocks()) * 2 * x.block)
      f(plane[channel % x.block], plane[x.block + channel % x.block]);
  }

  Tensor x;
  int channels, threads;
  double pixels;  // of the whole batch
  Scratch sums;
};

}  // namespace

Action plan(const BatchNormForward& step, Planner& planner) {
  const Geometry geometry(planner.tensor(step.x), planner);
  const Moments moments(geometry.x, planner.keep(Kept::moments, step.x, Moments::size(geometry.x)));
  const float* residual = step.residual == no_tensor ? nullptr : planner.tensor(step.residual).data;
  float* y = planner.tensor(step.y).data;
  const float *gamma = planner.parameters(step.gamma), *beta = planner.parameters(step.beta);
  const View running =
      step.training ? planner.buffers().batch_statistics : planner.buffers().statistics;
  float* statistics = running.slice(step.statistics).data();
  const auto plane_moments = pick<PlaneMoments>(planner.isa());
  const auto apply = pick<Apply>(planner.isa());

  return [=](const Frame& frame) {
    const std::size_t plane_pixels = geometry.x.pixels();
    if (step.training)
      geometry.for_each_plane(frame, [&](std::size_t first, std::size_t, double* sums) {
        plane_moments(geometry.x.data + first, plane_pixels, sums);
      });
    for_each_item(geometry.threads, geometry.channels, [&](std::size_t c) {
      double mean = statistics[c], variance = statistics[geometry.channels + c];
      if (step.training) {
        const double n = static_cast<double>(plane_pixels);
        double before = 0, squares = 0;
        mean = 0;
        geometry.for_each_image(
            frame, static_cast<int>(c), [&](double image_mean, double image_squares) {
              const double delta = image_mean - mean;
              squares += image_squares + delta * delta * before * n / (before + n);
              mean += delta * n / (before + n);
              before += n;
            });
        variance = squares / geometry.pixels;
        statistics[c] = static_cast<float>(mean);
        statistics[geometry.channels + c] = static_cast<float>(
            step.unbiased && geometry.pixels > 1 ? squares / (geometry.pixels - 1) : variance);
      }
      const double inverse = 1 / std::sqrt(variance + step.epsilon);
      moments.mean[c] = static_cast<float>(mean);
      moments.inverse_deviation[c] = static_cast<float>(inverse);
      moments.scale[c] = static_cast<float>(gamma ? gamma[c] * inverse : inverse);
      // The shift takes what rounding the mean to a float leaves over.
      moments.shift[c] =
          static_cast<float>(beta[c] - (mean - moments.mean[c]) * double(moments.scale[c]));
    });
    geometry.for_each_plane(frame, [&](std::size_t first, std::size_t channel, double*) {
      apply(geometry.x.data + first, residual ? residual + first : nullptr, y + first, plane_pixels,
            moments, channel, step.relu);
    });
  };
}

Action plan(const BatchNormBackward& step, Planner& planner) {
  const Geometry geometry(planner.tensor(step.x), planner);
  const Moments moments(geometry.x, planner.kept(Kept::moments, step.x));
  const auto data = [&](TensorId id) {
    return id == no_tensor ? nullptr : planner.tensor(id).data;
  };
  const float *y = data(step.y), *dy = data(step.dy), *dy2 = data(step.dy2);
  float *dx = data(step.dx), *dresidual = data(step.dresidual);
  float *dgamma = planner.gradients(step.gamma), *dbeta = planner.gradients(step.beta);
  const Scratch averages = planner.scratch(2 * moments.channels * sizeof(float));
  const auto plane_sums = pick<PlaneSums>(planner.isa());
  const auto input_gradient = pick<InputGradient>(planner.isa());
  const auto at = [](auto* tensor, std::size_t first) { return tensor ? tensor + first : nullptr; };

  return [=](const Frame& frame) {
    const Tensor& x = geometry.x;
    float *mean_g = averages.in(frame), *slope = mean_g + moments.channels;
    geometry.for_each_plane(frame, [&](std::size_t first, std::size_t channel, double* sums) {
      const Upstream u{x.data + first, at(y, first), dy + first, at(dy2, first), step.relu};
      plane_sums(u, at(dresidual, first), x.pixels(), moments, channel, sums);
    });
    std::fill_n(mean_g, 2 * moments.channels, 0.f);
    for_each_item(geometry.threads, geometry.channels, [&](std::size_t c) {
      double sum = 0, dot = 0;
      geometry.for_each_image(frame, static_cast<int>(c), [&](double g, double product) {
        sum += g;
        dot += product;
      });
      const double inverse = moments.inverse_deviation[c];
      dbeta[c] = static_cast<float>(sum);
      if (dgamma) dgamma[c] = static_cast<float>(dot * inverse);
      mean_g[c] = static_cast<float>(sum / geometry.pixels);
      slope[c] = static_cast<float>(dot * inverse * inverse / geometry.pixels);
    });
    geometry.for_each_plane(frame, [&](std::size_t first, std::size_t channel, double*) {
      // Where g was written, it is read back: one tensor instead of up to three.
      const Upstream u =
          dresidual ? Upstream{x.data + first, nullptr, dresidual + first, nullptr, false}
                    : Upstream{x.data + first, at(y, first), dy + first, at(dy2, first), step.relu};
      input_gradient(u, dx + first, x.pixels(), moments, channel, mean_g, slope);
    });
  };
}

}  // namespace ringtrain::onednn
