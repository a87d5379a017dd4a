#include <algorithm>
#include <cmath>

#include "compute/reference/state.hpp"

namespace ringtrain::compute::reference {
namespace {

// sum of f(j) over the channels j within `radius` of c
template <class F>
double around(int c, int radius, int channels, F f) {
  double sum = 0;
  for (int j = std::max(0, c - radius); j <= std::min(channels - 1, c + radius); ++j) sum += f(j);
  return sum;
}

double scale(const auto& step, const double* x, int c, int channels) {
  return step.how.bias +
         step.how.alpha * around(c, step.how.radius, channels, [&](int j) { return x[j] * x[j]; });
}

}  // namespace

template <>
void run(const LrnForward& step, State& s) {
  const int channels = s.shape(step.x).channels;
  for (std::size_t p = 0; p < s.shape(step.x).pixels(); ++p) {
    const double* x = &s[step.x][p * channels];
    for (int c = 0; c < channels; ++c)
      s[step.y][p * channels + c] = x[c] * std::pow(scale(step, x, c, channels), -step.how.beta);
  }
}

// dx = dy s^-b - 2 a b x * sum of (dy x s^-(b+1)) over the window
template <>
void run(const LrnBackward& step, State& s) {
  const int channels = s.shape(step.x).channels;
  std::vector<double> sums(channels), result(channels);
  for (std::size_t p = 0; p < s.shape(step.x).pixels(); ++p) {
    const double *x = &s[step.x][p * channels], *dy = &s[step.dy][p * channels];
    for (int c = 0; c < channels; ++c) sums[c] = scale(step, x, c, channels);
    for (int c = 0; c < channels; ++c) {
      const double spread = around(c, step.how.radius, channels, [&](int j) {
        return dy[j] * x[j] * std::pow(sums[j], -step.how.beta - 1);
      });
      result[c] = dy[c] * std::pow(sums[c], -step.how.beta) -
                  2.0 * step.how.alpha * step.how.beta * x[c] * spread;
      if (step.mask && x[c] <= 0) result[c] = 0;
    }
    std::ranges::copy(result, &s[step.dx][p * channels]);
  }
}

}  // namespace ringtrain::compute::reference
