#pragma once
#include <cmath>

#include "compute/cuda/kernels/arguments/layer_norm.hpp"
#include "compute/cuda/kernels/device/channel_sums.hpp"

// The calls of layer_norm.hpp for any queue: StreamQueue, or a CPU's in tests.
namespace ringtrain::compute::cuda::kernels::work {

/// Calls f(first channel, x) for the vectors of channels of one pixel.
template <int w, class T, class F>
constexpr void for_channels(const T* pixel, std::size_t channels, F f) {
  for (std::size_t c = 0; c < channels; c += w) f(c, load<w>(pixel + c));
}

struct PixelMoments {
  float mean, inverse;  // of the deviation
};

template <int w, class T>
constexpr PixelMoments moments_of(const T* pixel, std::size_t channels, float epsilon) {
  float sum = 0, squares = 0;
  for_channels<w>(pixel, channels, [&](std::size_t, const Lanes<w>& x) {
    for (int i = 0; i < w; ++i) sum += x[i];
  });
  const float count = static_cast<float>(channels), mean = sum / count;
  for_channels<w>(pixel, channels, [&](std::size_t, const Lanes<w>& x) {
    for (int i = 0; i < w; ++i) squares += (x[i] - mean) * (x[i] - mean);
  });
  return {mean, 1 / std::sqrt(squares / count + epsilon)};
}

// A thread a pixel.
template <class T, int w>
struct LayerNormForward {
  LayerNormOperands o;
  T* y;
  constexpr void operator()(std::uint32_t pixel) const {
    const T* x = static_cast<const T*>(o.x) + pixel * o.channels;
    const PixelMoments m = moments_of<w>(x, o.channels, o.epsilon);
    for_channels<w>(x, o.channels, [&](std::size_t c, Lanes<w> v) {
      for (int i = 0; i < w; ++i)
        v[i] = (v[i] - m.mean) * m.inverse * o.gamma[c + i] + o.beta[c + i];
      store(y + pixel * o.channels + c, v);
    });
  }
};

template <class Queue>
void layer_norm_forward(const LayerNormOperands& o, void* y, Queue& queue) {
  with_type_and_width(o.element, is_wide(o.element, {o.channels}, {o.x, y}),
                      [&]<class T>(T, auto w) {
                        queue.items(LayerNormForward<T, w>{o, static_cast<T*>(y)}, o.pixels);
                      });
}

/// Each pixel's moments, for the sums over pixels.
template <class T, int w>
struct LayerNormMoments {
  LayerNormOperands o;
  PixelMoments* moments;
  constexpr void operator()(std::uint32_t pixel) const {
    moments[pixel] =
        moments_of<w>(static_cast<const T*>(o.x) + pixel * o.channels, o.channels, o.epsilon);
  }
};

template <class T, int w>
struct LayerNormTerm {
  static constexpr int values = 2, width = w;
  const T *x, *dy;
  std::size_t channels;
  const PixelMoments* moments;

  constexpr LayerNormTerm column(std::uint32_t first) const {
    return {x + first, dy + first, channels, moments};
  }
  constexpr void add(std::uint32_t pixel, Lanes<w>* sums) const {
    const PixelMoments m = moments[pixel];
    const auto v = load_constant<w>(x + pixel * channels),
               g = load_constant<w>(dy + pixel * channels);
    for (int i = 0; i < w; ++i) {
      sums[0][i] += g[i] * (v[i] - m.mean) * m.inverse;
      sums[1][i] += g[i];
    }
  }
};

struct WriteGammaAndBeta {
  float *dgamma, *dbeta;
  template <class Total>
  constexpr void operator()(std::uint32_t channel, const Total* totals) const {
    dgamma[channel] = static_cast<float>(totals[0]);
    dbeta[channel] = static_cast<float>(totals[1]);
  }
};

template <class T, int w>
struct LayerNormInputGradient {
  LayerNormOperands o;
  const PixelMoments* moments;
  const T* dy;
  T* dx;
  constexpr void operator()(std::uint32_t pixel) const {
    const std::size_t at = pixel * o.channels;
    const T* x = static_cast<const T*>(o.x) + at;
    const PixelMoments m = moments[pixel];
    float sum = 0, sum_x = 0;
    for_channels<w>(x, o.channels, [&](std::size_t c, const Lanes<w>& v) {
      const auto g = load<w>(dy + at + c);
      for (int i = 0; i < w; ++i) {
        sum += g[i] * o.gamma[c + i];
        sum_x += g[i] * o.gamma[c + i] * (v[i] - m.mean) * m.inverse;
      }
    });
    const float count = static_cast<float>(o.channels);
    for_channels<w>(x, o.channels, [&](std::size_t c, const Lanes<w>& v) {
      auto g = load<w>(dy + at + c);
      for (int i = 0; i < w; ++i)
        g[i] = m.inverse *
               (g[i] * o.gamma[c + i] - (sum + (v[i] - m.mean) * m.inverse * sum_x) / count);
      store(dx + at + c, g);
    });
  }
};

/// Bytes of the moments in the workspace; sums_workspace() follows.
inline std::size_t moments_bytes(std::size_t pixels) {
  return divide_up(pixels * sizeof(PixelMoments), 16) * 16;
}

template <class Queue>
void layer_norm_backward(const LayerNormOperands& o, const void* dy, void* dx, float* dgamma,
                         float* dbeta, float* workspace, Queue& queue) {
  auto* moments = reinterpret_cast<PixelMoments*>(workspace);
  float* sums = workspace + moments_bytes(o.pixels) / sizeof(float);
  with_type_and_width(
      o.element, is_wide(o.element, {o.channels}, {o.x, dy, dx}), [&]<class T>(T, auto w) {
        const auto *x = static_cast<const T*>(o.x), *g = static_cast<const T*>(dy);
        queue.items(LayerNormMoments<T, w>{o, moments}, o.pixels);
        sum_pixels(o.pixels, o.channels, LayerNormTerm<T, w>{x, g, o.channels, moments},
                   WriteGammaAndBeta{dgamma, dbeta}, sums, queue);
        queue.items(LayerNormInputGradient<T, w>{o, moments, g, static_cast<T*>(dx)}, o.pixels);
      });
}

}  // namespace ringtrain::compute::cuda::kernels::work
