#include "support/host_gpu/loops.hpp"

#include <algorithm>

namespace ringtrain::host_gpu {
namespace {

// Calls f(row, column of y, row, column of x, tap's row, column) where a tap meets the image.
template <class F>
void for_each_tap(const compute::Window& w, const Field& x, const Field& y, F f) {
  for (int oy = 0; oy < y.height(); ++oy)
    for (int ox = 0; ox < y.width(); ++ox)
      for (int ky = 0; ky < w.height; ++ky)
        for (int kx = 0; kx < w.width; ++kx) {
          const int iy = oy * w.stride_y + ky - w.top, ix = ox * w.stride_x + kx - w.left;
          if (iy >= 0 && iy < x.height() && ix >= 0 && ix < x.width()) f(oy, ox, iy, ix, ky, kx);
        }
}

float dot(const float* a, const float* b, std::size_t count) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::size_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

void add_multiple(float factor, const float* from, float* to, std::size_t count) {
#pragma omp simd
  for (std::size_t i = 0; i < count; ++i) to[i] += factor * from[i];
}

}  // namespace

void convolution(const compute::Window& window, const Field& x, const Field& w, Field& y) {
  const std::size_t in = x.channels(), out = y.channels();
  std::ranges::fill(y.at, 0.f);
  for (std::size_t n = 0; n < x.batch(); ++n)
    for_each_tap(window, x, y, [&](int oy, int ox, int iy, int ix, int ky, int kx) {
      float* to = y.pixel(n, oy, ox);
      for (std::size_t o = 0; o < out; ++o)
        to[o] += dot(w.pixel(o, ky, kx), x.pixel(n, iy, ix), in);
    });
}

void input_gradient(const compute::Window& window, const Field& dy, const Field& w, Field& dx) {
  const std::size_t in = dx.channels(), out = dy.channels();
  std::ranges::fill(dx.at, 0.f);
  for (std::size_t n = 0; n < dx.batch(); ++n)
    for_each_tap(window, dx, dy, [&](int oy, int ox, int iy, int ix, int ky, int kx) {
      const float* from = dy.pixel(n, oy, ox);
      for (std::size_t o = 0; o < out; ++o)
        add_multiple(from[o], w.pixel(o, ky, kx), dx.pixel(n, iy, ix), in);
    });
}

void weight_gradient(const compute::Window& window, const Field& dy, const Field& x, Field& dw) {
  const std::size_t in = x.channels(), out = dy.channels();
  std::ranges::fill(dw.at, 0.f);
  for (std::size_t o = 0; o < out; ++o)
    for (std::size_t n = 0; n < x.batch(); ++n)
      for_each_tap(window, x, dy, [&](int oy, int ox, int iy, int ix, int ky, int kx) {
        add_multiple(dy.pixel(n, oy, ox)[o], x.pixel(n, iy, ix), dw.pixel(o, ky, kx), in);
      });
}

void statistics(const Field& x, Field& sum, Field& squares) {
  const std::size_t channels = x.channels();
  for (std::size_t c = 0; c < channels; ++c) {
    double first = 0, second = 0;
    for (std::size_t i = c; i < x.at.size(); i += channels) {
      first += x.at[i];
      second += double(x.at[i]) * x.at[i];
    }
    sum.at[c] = static_cast<float>(first);
    squares.at[c] = static_cast<float>(second);
  }
}

void batch_norm_sums(const BatchNormInputs& in, const BatchNormResults& out) {
  const std::size_t channels = in.x.channels();
  const double count = double(in.x.at.size()) / double(channels);
  for (std::size_t c = 0; c < channels; ++c) {
    const double mean = in.mean.at[c], inverse = in.inverse_deviation.at[c];
    double sum = 0, product = 0;
    for (std::size_t i = c; i < in.x.at.size(); i += channels) {
      sum += in.dy.at[i];
      product += in.dy.at[i] * (in.x.at[i] - mean) * inverse;
    }
    const double g_scale = in.gamma.at[c] * inverse;
    const double x_scale = -g_scale * inverse * product / count;
    out.dgamma.at[c] = static_cast<float>(product);
    out.dbeta.at[c] = static_cast<float>(sum);
    out.g_scale.at[c] = static_cast<float>(g_scale);
    out.x_scale.at[c] = static_cast<float>(x_scale);
    out.shift.at[c] = static_cast<float>(-g_scale * sum / count - x_scale * mean);
  }
}

}  // namespace ringtrain::host_gpu
