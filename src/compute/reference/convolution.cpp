#include <algorithm>

#include "compute/reference/state.hpp"

namespace ringtrain::compute::reference {
namespace {

// Calls f(weight, place in y, place in x, n) for each of `n` neighbouring weights, and elements of
// x, that make an element of y. Weights are out x taps x in, with the inputs of one group.
template <class F>
void for_each_run(const auto& step, const Shape& xs, const Shape& ys, F f) {
  const int in = xs.channels / step.window.groups, out = ys.channels / step.window.groups;
  const std::size_t taps = std::size_t(step.window.height) * step.window.width;
  for_each_tap(xs, ys, step.window, [&](std::size_t to, std::size_t from, std::size_t tap) {
    for (int o = 0; o < ys.channels; ++o)
      f(step.w.first + (o * taps + tap) * in, to * ys.channels + o,
        from * xs.channels + o / out * in, in);
  });
}

}  // namespace

template <>
void run(const ConvolutionForward& step, State& s) {
  const Shape &xs = s.shape(step.x), &ys = s.shape(step.y);
  const std::vector<double> x = read(step, s);
  auto& y = s[step.y];
  for (std::size_t i = 0; i < y.size(); ++i)
    y[i] = step.b ? s.parameters[step.b->first + i % ys.channels] : 0;
  for_each_run(step, xs, ys, [&](std::size_t weight, std::size_t to, std::size_t from, int n) {
    const double* w = &s.parameters[weight];
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int i = 0; i < n; ++i) sum += w[i] * x[from + i];
    y[to] += sum;
  });
  for (double& v : y) v = value_of(step.then, v);
  if (step.sums != no_vector) s.vectors[step.sums] = sums_of(y, ys.channels);
}

template <>
void run(const ConvolutionInputGradient& step, State& s) {
  const Shape &xs = s.shape(step.epilogue ? step.epilogue->x : step.dx), &ys = s.shape(step.dy);
  const auto& dy = s[step.dy];
  std::vector<double> dx(xs.elements());
  for_each_run(step, xs, ys, [&](std::size_t weight, std::size_t to, std::size_t from, int n) {
    const double* w = &s.parameters[weight];
    double* to_x = &dx[from];
    const double slope = dy[to];
#pragma omp simd
    for (int i = 0; i < n; ++i) to_x[i] += w[i] * slope;
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
  for_each_run(step, xs, ys, [&](std::size_t weight, std::size_t to, std::size_t from, int n) {
    double* dw = &s.gradients[weight];
    const double *from_x = &x[from], slope = dy[to];
#pragma omp simd
    for (int i = 0; i < n; ++i) dw[i] += from_x[i] * slope;
  });
  if (!step.b) return;
  std::fill_n(s.gradients.begin() + step.b->first, step.b->count, 0);
  for (std::size_t i = 0; i < dy.size(); ++i) s.gradients[step.b->first + i % ys.channels] += dy[i];
}

}  // namespace ringtrain::compute::reference
