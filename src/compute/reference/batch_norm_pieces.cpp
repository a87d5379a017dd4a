#include "compute/reference/batch_norm_pieces.hpp"

#include <algorithm>
#include <cmath>

namespace ringtrain::compute::reference {

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
    if (how.relu) y[i] = std::max(y[i], 0.0);
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
  const std::vector<double> y = how.y != no_tensor ? s[how.y] : activate(again, x, s);
  std::vector<double> g(dy), sum(channels), dot(channels);
  for (std::size_t i = 0; i < g.size(); ++i) {
    const std::size_t c = i % channels;
    if (how.skip != no_tensor) g[i] += s[how.skip][i];
    if (how.relu && !(y[i] > 0)) g[i] = 0;
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

void run(const BatchNormStatistics& step, State& s) {
  s.vectors[step.sums] = sums_of(s[step.x], s.shape(step.x).channels);
}

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

void run(const BatchNormApply& step, State& s) { s[step.y] = activate(step.how, s[step.x], s); }

void run(const BatchNormBackwardReduce& step, State& s) {
  reduce_gradient(step.how, s[step.dy], s);
}

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
