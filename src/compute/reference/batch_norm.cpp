#include <algorithm>
#include <cmath>

#include "compute/reference/state.hpp"

namespace ringtrain::compute::reference {
namespace {

State::Moments batch_moments(const std::vector<double>& x, const Shape& shape) {
  const int channels = shape.channels;
  const auto count = static_cast<double>(shape.pixels());
  State::Moments m{std::vector<double>(channels), std::vector<double>(channels), count};
  for (std::size_t i = 0; i < x.size(); ++i) m.mean[i % channels] += x[i] / count;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double d = x[i] - m.mean[i % channels];
    m.variance[i % channels] += d * d / count;
  }
  return m;
}

// The moments of all ranks' pixels from those of each rank's. Sums are of distances to `origin`,
// which is the same on all ranks, because sums of squares lose what is far from zero.
State::Moments over_ranks(const State::Moments& mine, const double* origin, const State& s) {
  const std::size_t channels = mine.mean.size();
  std::vector<double> sums(2 * channels + 1, mine.count);
  for (std::size_t c = 0; c < channels; ++c) {
    const double d = mine.mean[c] - origin[c];
    sums[c] = mine.count * d;
    sums[channels + c] = mine.count * (mine.variance[c] + d * d);
  }
  s.sum_over_ranks(sums);
  State::Moments all{mine.mean, mine.variance, sums.back()};
  for (std::size_t c = 0; c < channels; ++c) {
    const double d = sums[c] / all.count;
    all.mean[c] = origin[c] + d;
    all.variance[c] = std::max(sums[channels + c] / all.count - d * d, 0.0);
  }
  return all;
}

}  // namespace

void run(const BatchNormForward& step, State& s) {
  const Shape& shape = s.shape(step.x);
  const int channels = shape.channels;
  const auto& x = s[step.x];
  const auto running = s.statistics.begin() + step.statistics.first;
  State::Moments m;
  if (step.training) {
    m = batch_moments(x, shape);
    if (step.all_ranks) m = over_ranks(m, &*running, s);
    const double correction = step.unbiased && m.count > 1 ? m.count / (m.count - 1) : 1;
    for (int c = 0; c < channels; ++c) {
      s.batch_statistics[step.statistics.first + c] = m.mean[c];
      s.batch_statistics[step.statistics.first + channels + c] = m.variance[c] * correction;
    }
  } else {
    m = {{running, running + channels}, {running + channels, running + 2 * channels}, 0};
  }
  auto& y = s[step.y];
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t c = i % channels;
    const double gamma = step.gamma ? s.parameters[step.gamma->first + c] : 1;
    double v = (x[i] - m.mean[c]) / std::sqrt(m.variance[c] + step.epsilon) * gamma +
               s.parameters[step.beta.first + c];
    if (step.residual != no_tensor) v += s[step.residual][i];
    y[i] = step.relu ? std::max(v, 0.0) : v;
  }
  s.moments[step.x] = std::move(m);
}

void run(const BatchNormBackward& step, State& s) {
  const int channels = s.shape(step.x).channels;
  const auto& x = s[step.x];
  const State::Moments& m = s.moments.at(step.x);
  const auto gamma = [&](std::size_t c) {
    return step.gamma ? s.parameters[step.gamma->first + c] : 1;
  };
  const auto normal = [&](std::size_t i) {
    return (x[i] - m.mean[i % channels]) / std::sqrt(m.variance[i % channels] + step.epsilon);
  };
  const auto positive = [&](std::size_t i) {
    if (step.y != no_tensor) return s[step.y][i] > 0;
    const std::size_t c = i % channels;
    return normal(i) * gamma(c) + s.parameters[step.beta.first + c] > 0;
  };

  std::vector<double> g(x.size()), sums(2 * channels);
  double *sum = sums.data(), *dot = sum + channels;
  for (std::size_t i = 0; i < x.size(); ++i) {
    g[i] = s[step.dy][i] + (step.dy2 != no_tensor ? s[step.dy2][i] : 0);
    if (step.relu && !positive(i)) g[i] = 0;
    sum[i % channels] += g[i];
    dot[i % channels] += g[i] * normal(i);
  }
  std::copy_n(sum, channels, s.gradients.begin() + step.beta.first);
  if (step.gamma) std::copy_n(dot, channels, s.gradients.begin() + step.gamma->first);
  if (step.all_ranks) s.sum_over_ranks(sums);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t c = i % channels;
    s[step.dx][i] = gamma(c) / std::sqrt(m.variance[c] + step.epsilon) *
                    (g[i] - sum[c] / m.count - normal(i) * dot[c] / m.count);
  }
  if (step.dresidual != no_tensor) s[step.dresidual] = g;
}

}  // namespace ringtrain::compute::reference
