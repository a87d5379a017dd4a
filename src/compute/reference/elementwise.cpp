#include <algorithm>
#include <cmath>
#include <numbers>

#include "compute/reference/state.hpp"
#include "ringtrain/base/philox.hpp"

namespace ringtrain::compute::reference {

namespace {

double logistic(double x) { return 1 / (1 + std::exp(-x)); }
double normal_density(double x) { return std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi); }
double normal_distribution(double x) { return std::erfc(-x / std::numbers::sqrt2) / 2; }

// What GELU's approximation takes the tanh of, and its slope.
double inner(double x) { return std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x); }
double inner_slope(double x) { return std::sqrt(2 / std::numbers::pi) * (1 + 0.134145 * x * x); }

}  // namespace

double value_of(Activation f, double x) {
  switch (f) {
    case Activation::none:
      return x;
    case Activation::relu:
      return std::max(x, 0.0);
    case Activation::silu:
      return x * logistic(x);
    case Activation::relu6:
      return std::clamp(x, 0.0, 6.0);
    case Activation::sigmoid:
      return logistic(x);
    case Activation::hard_sigmoid:
      return std::clamp(x + 3, 0.0, 6.0) / 6;
    case Activation::hard_swish:
      return x * std::clamp(x + 3, 0.0, 6.0) / 6;
    case Activation::gelu:
      return x * normal_distribution(x);
    case Activation::gelu_tanh:
      return x / 2 * (1 + std::tanh(inner(x)));
  }
  return x;
}

double slope_of(Activation f, double saved) {
  switch (f) {
    case Activation::none:
      return 1;
    case Activation::relu:
      return saved > 0;
    case Activation::silu:
      return logistic(saved) * (1 + saved * (1 - logistic(saved)));
    case Activation::relu6:
      return saved > 0 && saved < 6;
    case Activation::sigmoid:
      return saved * (1 - saved);
    case Activation::hard_sigmoid:
      return saved > -3 && saved < 3 ? 1. / 6 : 0;
    case Activation::hard_swish:
      return saved <= -3 ? 0 : saved >= 3 ? 1 : saved / 3 + 0.5;
    case Activation::gelu:
      return normal_distribution(saved) + saved * normal_density(saved);
    case Activation::gelu_tanh: {
      const double t = std::tanh(inner(saved));
      return (1 + t) / 2 + saved / 2 * (1 - t * t) * inner_slope(saved);
    }
  }
  return 1;
}

template <>
void run(const Pointwise& step, State& s) {
  std::ranges::transform(s[step.x], s[step.y].begin(),
                         [&](double x) { return value_of(step.f, x); });
}

template <>
void run(const PointwiseBackward& step, State& s) {
  std::ranges::transform(s[step.saved], s[step.dy], s[step.dx].begin(),
                         [&](double saved, double dy) { return slope_of(step.f, saved) * dy; });
}

template <>
void run(const Add& step, State& s) {
  std::ranges::transform(s[step.a], s[step.b], s[step.y].begin(),
                         [&](double a, double b) { return value_of(step.then, a + b); });
}

template <>
void run(const ScaleForward& step, State& s) {
  const std::size_t channels = s.shape(step.x).channels, image = s.shape(step.x).features();
  for (std::size_t i = 0; i < s[step.y].size(); ++i)
    s[step.y][i] = s[step.x][i] * s[step.s][i / image * channels + i % channels];
}

template <>
void run(const ScaleBackward& step, State& s) {
  const std::size_t channels = s.shape(step.x).channels, image = s.shape(step.x).features();
  const std::vector<double> dy = s[step.dy];  // dx may lie over it
  std::vector<double> ds(s[step.s].size());
  for (std::size_t i = 0; i < dy.size(); ++i) {
    const std::size_t factor = i / image * channels + i % channels;
    ds[factor] += dy[i] * s[step.x][i];
    if (step.dx != no_tensor) s[step.dx][i] = dy[i] * s[step.s][factor];
  }
  if (step.ds != no_tensor) s[step.ds] = std::move(ds);
}

template <>
void run(const Multiply& step, State& s) {
  std::ranges::transform(s[step.x], s[step.y].begin(),
                         [&](double x) { return double(step.factor) * x; });
}

template <>
void run(const Concat& step, State& s) {
  const std::size_t total = s.shape(step.y).channels;
  std::size_t first = 0;
  for (const TensorId id : step.x) {
    const std::size_t channels = s.shape(id).channels;
    for (std::size_t i = 0; i < s[id].size(); ++i)
      s[step.y][i / channels * total + first + i % channels] = s[id][i];
    first += channels;
  }
}

template <>
void run(const ChannelSlice& step, State& s) {
  const std::size_t total = s.shape(step.x).channels, channels = s.shape(step.y).channels;
  for (std::size_t i = 0; i < s[step.y].size(); ++i)
    s[step.y][i] = s[step.x][i / channels * total + step.first + i % channels];
}

namespace {

// Calls f(small index, large index) for every element that the shortcut carries over.
template <class F>
void for_each_carried(const Shape& large, const Shape& small, int stride, F f) {
  const int channels = std::min(large.channels, small.channels);
  for (int n = 0; n < small.batch; ++n)
    for (int y = 0; y < small.height; ++y)
      for (int x = 0; x < small.width; ++x)
        for (int c = 0; c < channels; ++c)
          f(((std::size_t(n) * small.height + y) * small.width + x) * small.channels + c,
            ((std::size_t(n) * large.height + y * stride) * large.width + x * stride) *
                    large.channels +
                c);
}

}  // namespace

template <>
void run(const ShortcutForward& step, State& s) {
  std::ranges::fill(s[step.y], 0);
  for_each_carried(s.shape(step.x), s.shape(step.y), step.stride,
                   [&](std::size_t y, std::size_t x) { s[step.y][y] = s[step.x][x]; });
}

template <>
void run(const ShortcutBackward& step, State& s) {
  std::ranges::fill(s[step.dx], 0);
  for_each_carried(s.shape(step.dx), s.shape(step.dy), step.stride,
                   [&](std::size_t y, std::size_t x) { s[step.dx][x] = s[step.dy][y]; });
}

template <>
void run(const Dropout& step, State& s) {
  const Shape& shape = s.shape(step.x);
  for (int n = 0; n < shape.batch; ++n) {
    const Sample& sample = s.batch->samples[n];
    Philox random(s.seed, Purpose::dropout, step.how.layer + 256 * sample.epoch, sample.key());
    bool kept = false;
    for (std::size_t i = 0; i < shape.features(); ++i) {
      const std::size_t at = n * shape.features() + i;
      if (i == 0 || !step.how.of_sample) kept = random.uniform() < step.how.keep;
      s[step.y][at] = kept ? s[step.x][at] / step.how.keep : 0;
    }
  }
}

}  // namespace ringtrain::compute::reference
