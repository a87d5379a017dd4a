#include <algorithm>

#include "compute/reference/state.hpp"

namespace ringtrain::compute::reference {
namespace {

// Weights are out x taps x in: the index of (out, tap, in).
std::size_t weight(std::size_t o, std::size_t tap, const Window& window, int in) {
  return (o * window.height * window.width + tap) * in;
}

}  // namespace

template <>
void run(const ConvolutionForward& step, State& s) {
  const Shape &xs = s.shape(step.x), &ys = s.shape(step.y);
  const std::vector<double> x = read(step, s);
  auto& y = s[step.y];
  for (std::size_t i = 0; i < y.size(); ++i)
    y[i] = step.b ? s.parameters[step.b->first + i % ys.channels] : 0;
  for_each_tap(xs, ys, step.window, [&](std::size_t out, std::size_t in, std::size_t tap) {
    for (int o = 0; o < ys.channels; ++o) {
      const double* w = &s.parameters[step.w.first + weight(o, tap, step.window, xs.channels)];
      double sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int i = 0; i < xs.channels; ++i) sum += w[i] * x[in * xs.channels + i];
      y[out * ys.channels + o] += sum;
    }
  });
  if (step.relu)
    for (double& v : y) v = std::max(v, 0.0);
  if (step.sums != no_vector) s.vectors[step.sums] = sums_of(y, ys.channels);
}

template <>
void run(const ConvolutionInputGradient& step, State& s) {
  const Shape &xs = s.shape(step.epilogue ? step.epilogue->x : step.dx), &ys = s.shape(step.dy);
  const auto& dy = s[step.dy];
  std::vector<double> dx(xs.elements());
  for_each_tap(xs, ys, step.window, [&](std::size_t out, std::size_t in, std::size_t tap) {
    for (int o = 0; o < ys.channels; ++o) {
      const double* w = &s.parameters[step.w.first + weight(o, tap, step.window, xs.channels)];
      for (int i = 0; i < xs.channels; ++i)
        dx[in * xs.channels + i] += w[i] * dy[out * ys.channels + o];
    }
  });
  if (!step.epilogue) {
    s[step.dx] = std::move(dx);
    return;
  }
  reduce_gradient(*step.epilogue, dx, s);
  if (step.epilogue_of_residual)
    reduce_gradient(*step.epilogue_of_residual, s[step.epilogue->g], s);
}

template <>
void run(const ConvolutionWeightGradient& step, State& s) {
  const Shape &xs = s.shape(step.x), &ys = s.shape(step.dy);
  const std::vector<double> x = read(step, s);
  const auto& dy = s[step.dy];
  std::fill_n(s.gradients.begin() + step.w.first, step.w.count, 0);
  for_each_tap(xs, ys, step.window, [&](std::size_t out, std::size_t in, std::size_t tap) {
    for (int o = 0; o < ys.channels; ++o) {
      double* dw = &s.gradients[step.w.first + weight(o, tap, step.window, xs.channels)];
      for (int i = 0; i < xs.channels; ++i)
        dw[i] += x[in * xs.channels + i] * dy[out * ys.channels + o];
    }
  });
  if (!step.b) return;
  std::fill_n(s.gradients.begin() + step.b->first, step.b->count, 0);
  for (std::size_t i = 0; i < dy.size(); ++i) s.gradients[step.b->first + i % ys.channels] += dy[i];
}

}  // namespace ringtrain::compute::reference
