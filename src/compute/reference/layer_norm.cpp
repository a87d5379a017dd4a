#include <cmath>
#include <numeric>
#include <span>

#include "compute/reference/state.hpp"

namespace ringtrain::compute::reference {
namespace {

// The channels of a pixel with mean 0 and variance 1, and what they were divided by.
struct Normalised {
  std::vector<double> x;
  double deviation;
};

Normalised normalised(std::span<const double> x, double epsilon) {
  const double n = double(x.size()), mean = std::reduce(x.begin(), x.end()) / n;
  double squares = 0;
  for (const double v : x) squares += (v - mean) * (v - mean);
  Normalised result{{x.begin(), x.end()}, std::sqrt(squares / n + epsilon)};
  for (double& v : result.x) v = (v - mean) / result.deviation;
  return result;
}

}  // namespace

template <>
void run(const LayerNormForward& step, State& s) {
  const std::size_t channels = s.shape(step.x).channels;
  for (std::size_t first = 0; first < s[step.x].size(); first += channels) {
    const Normalised pixel =
        normalised(std::span(s[step.x]).subspan(first, channels), step.epsilon);
    for (std::size_t c = 0; c < channels; ++c)
      s[step.y][first + c] =
          pixel.x[c] * s.parameters[step.gamma.first + c] + s.parameters[step.beta.first + c];
  }
}

template <>
void run(const LayerNormBackward& step, State& s) {
  const std::size_t channels = s.shape(step.x).channels;
  const std::vector<double> dy = s[step.dy];  // dx may lie over it
  std::vector<double> dgamma(channels), dbeta(channels), g(channels);
  for (std::size_t first = 0; first < dy.size(); first += channels) {
    const Normalised pixel =
        normalised(std::span(s[step.x]).subspan(first, channels), step.epsilon);
    double sum = 0, sum_x = 0;
    for (std::size_t c = 0; c < channels; ++c) {
      dgamma[c] += dy[first + c] * pixel.x[c];
      dbeta[c] += dy[first + c];
      g[c] = dy[first + c] * s.parameters[step.gamma.first + c];
      sum += g[c];
      sum_x += g[c] * pixel.x[c];
    }
    for (std::size_t c = 0; c < channels; ++c)
      s[step.dx][first + c] =
          (g[c] - (sum + pixel.x[c] * sum_x) / double(channels)) / pixel.deviation;
  }
  for (std::size_t c = 0; c < channels; ++c) {
    s.gradients[step.gamma.first + c] = dgamma[c];
    s.gradients[step.beta.first + c] = dbeta[c];
  }
}

}  // namespace ringtrain::compute::reference
