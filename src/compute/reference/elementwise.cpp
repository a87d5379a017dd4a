#include <algorithm>
#include <cmath>

#include "compute/reference/state.hpp"
#include "ringtrain/base/philox.hpp"

namespace ringtrain::compute::reference {

namespace {

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

}  // namespace

double value_of(Activation f, double x) {
  switch (f) {
    case Activation::none:
      return x;
    case Activation::relu:
      return std::max(x, 0.0);
    case Activation::silu:
      return x * logistic(x);
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
    Philox random(s.seed, Purpose::dropout, step.how.layer + 256 * s.batch->epochs[n],
                  s.batch->samples[n]);
    for (std::size_t i = 0; i < shape.features(); ++i) {
      const std::size_t at = n * shape.features() + i;
      s[step.y][at] = random.uniform() < step.how.keep ? s[step.x][at] / step.how.keep : 0;
    }
  }
}

}  // namespace ringtrain::compute::reference
