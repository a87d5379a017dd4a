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

template <>
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
    y[i] = value_of(step.then, v);
  }
  s.moments[step.x] = std::move(m);
}

template <>
void run(const BatchNormInputGradient& step, State& s) {
  const std::size_t channels = s.shape(step.dy).channels;
  for (std::size_t i = 0; i < s[step.dy].size(); ++i) {
    const std::size_t c = i % channels;
    const double gamma = step.gamma ? s.parameters[step.gamma->first + c] : 1;
    const double variance = s.statistics[step.statistics.first + channels + c];
    s[step.dx][i] = s[step.dy][i] * gamma / std::sqrt(variance + step.epsilon);
  }
}

template <>
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
  const auto slope = [&](std::size_t i) {
    if (step.y != no_tensor) return slope_of(step.then, s[step.y][i]);
    const std::size_t c = i % channels;
    return slope_at(step.then, normal(i) * gamma(c) + s.parameters[step.beta.first + c]);
  };

  std::vector<double> g(x.size()), sums(2 * channels);
  double *sum = sums.data(), *dot = sum + channels;
  for (std::size_t i = 0; i < x.size(); ++i) {
    g[i] = slope(i) * (s[step.dy][i] + (step.dy2 != no_tensor ? s[step.dy2][i] : 0));
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

std::vector<double> activate(const AppliedNorm& how, const std::vector<double>& x, State& s) {
  const auto &scale = s.vectors[how.scale], &bias = s.vectors[how.bias];
  const auto residual = [&](std::size_t i) {
    const double r = s[how.residual][i];
    if (how.residual_scale == no_vector) return r;
    const std::size_t c = i % scale.size();
    return r * s.vectors[how.residual_scale][c] + s.vectors[how.residual_bias][c];
  };
  std::vector<double> y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    y[i] = x[i] * scale[i % scale.size()] + bias[i % scale.size()];
    if (how.residual != no_tensor) y[i] += residual(i);
    y[i] = value_of(how.then, y[i]);
  }
  if (how.y != no_tensor) s[how.y] = y;
  return y;
}

std::vector<double> sums_of(const std::vector<double>& x, int channels) {
  std::vector<double> sums(2 * channels);
  for (std::size_t i = 0; i < x.size(); ++i) {
    sums[i % channels] += x[i];
    sums[channels + i % channels] += x[i] * x[i];
  }
  return sums;
}

void reduce_gradient(const BatchNormSums& how, const std::vector<double>& dy, State& s) {
  const auto& x = s[how.x];
  const std::size_t channels = s.vectors[how.mean].size();
  const auto &mean = s.vectors[how.mean], &inverse = s.vectors[how.inverse_deviation];
  const AppliedNorm again{how.scale, how.bias, how.residual, how.residual_scale, how.residual_bias};
  const std::vector<double> before =
      how.y == no_tensor ? activate(again, x, s) : std::vector<double>();
  const auto slope = [&](std::size_t i) {
    return how.y != no_tensor ? slope_of(how.then, s[how.y][i]) : slope_at(how.then, before[i]);
  };
  std::vector<double> g(dy), sum(channels), dot(channels);
  for (std::size_t i = 0; i < g.size(); ++i) {
    const std::size_t c = i % channels;
    if (how.skip != no_tensor) g[i] += s[how.skip][i];
    g[i] *= slope(i);
    sum[c] += g[i];
    dot[c] += g[i] * (x[i] - mean[c]) * inverse[c];
  }
  std::ranges::copy(sum, s.gradients.begin() + how.beta.first);
  if (how.gamma) std::ranges::copy(dot, s.gradients.begin() + how.gamma->first);
  const auto count = static_cast<double>(how.count);
  for (std::size_t c = 0; c < channels; ++c) {
    const double gamma = how.gamma ? s.parameters[how.gamma->first + c] : 1;
    const double g_scale = gamma * inverse[c], x_scale = -g_scale * inverse[c] * dot[c] / count;
    s.vectors[how.g_scale][c] = g_scale;
    s.vectors[how.x_scale][c] = x_scale;
    s.vectors[how.shift][c] = -g_scale * sum[c] / count - x_scale * mean[c];
  }
  if (how.g != no_tensor) s[how.g] = std::move(g);
}

template <>
void run(const BatchNormStatistics& step, State& s) {
  s.vectors[step.sums] = sums_of(s[step.x], s.shape(step.x).channels);
}

template <>
void run(const BatchNormFinalize& step, State& s) {
  const std::size_t channels = s.vectors[step.mean].size();
  const double* sums = s.vectors[step.sums].data() + step.first;
  const double* squares = sums + s.vectors[step.sums].size() / 2;
  const auto count = static_cast<double>(step.count);
  const double correction = step.unbiased && count > 1 ? count / (count - 1) : 1;
  for (std::size_t c = 0; c < channels; ++c) {
    const double mean = sums[c] / count;
    const double variance = std::max(squares[c] / count - mean * mean, 0.0);
    const double inverse = 1 / std::sqrt(variance + step.epsilon);
    const double scale = step.gamma ? inverse * s.parameters[step.gamma->first + c] : inverse;
    s.batch_statistics[step.statistics.first + c] = mean;
    s.batch_statistics[step.statistics.first + channels + c] = variance * correction;
    s.vectors[step.mean][c] = mean;
    s.vectors[step.inverse_deviation][c] = inverse;
    s.vectors[step.scale][c] = scale;
    s.vectors[step.bias][c] = s.parameters[step.beta.first + c] - mean * scale;
  }
}

template <>
void run(const BatchNormApply& step, State& s) {
  s[step.y] = activate(step.how, s[step.x], s);
}

template <>
void run(const BatchNormBackwardReduce& step, State& s) {
  reduce_gradient(step.how, s[step.dy], s);
}

template <>
void run(const BatchNormBackwardApply& step, State& s) {
  const std::vector<double> g = s[step.g];  // a copy: dx may be written over it
  const auto apply = [&](TensorId x, TensorId dx, VectorId g_scale, VectorId x_scale,
                         VectorId shift) {
    for (std::size_t i = 0; i < g.size(); ++i) {
      const std::size_t c = i % s.vectors[shift].size();
      s[dx][i] =
          s.vectors[g_scale][c] * g[i] + s.vectors[x_scale][c] * s[x][i] + s.vectors[shift][c];
    }
  };
  apply(step.x, step.dx, step.g_scale, step.x_scale, step.shift);
  if (step.dx2 != no_tensor) apply(step.x2, step.dx2, step.g_scale2, step.x_scale2, step.shift2);
}

}  // namespace ringtrain::compute::reference
