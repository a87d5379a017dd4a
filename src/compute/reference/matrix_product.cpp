#include <algorithm>
#include <numeric>

#include "compute/reference/state.hpp"

namespace ringtrain::compute::reference {

template <>
void run(const MatrixProductForward& step, State& s) {
  const std::size_t batch = s.shape(step.x).batch, in = s.shape(step.x).features(),
                    out = s.shape(step.y).features();
  const double *x = s[step.x].data(), *w = &s.parameters[step.w.first];
  auto& y = s[step.y];
  for (std::size_t n = 0; n < batch; ++n)
    for (std::size_t o = 0; o < out; ++o) {
      const double bias = step.b ? s.parameters[step.b->first + o] : 0;
      const double sum = std::inner_product(&w[o * in], &w[(o + 1) * in], &x[n * in], bias);
      y[n * out + o] = value_of(step.then, sum);
    }
}

template <>
void run(const MatrixProductInputGradient& step, State& s) {
  const std::size_t batch = s.shape(step.dx).batch, in = s.shape(step.dx).features(),
                    out = s.shape(step.dy).features();
  const double *dy = s[step.dy].data(), *w = &s.parameters[step.w.first];
  auto& dx = s[step.dx];
  std::ranges::fill(dx, 0);
  for (std::size_t n = 0; n < batch; ++n)
    for (std::size_t o = 0; o < out; ++o)
      for (std::size_t i = 0; i < in; ++i) dx[n * in + i] += w[o * in + i] * dy[n * out + o];
}

template <>
void run(const MatrixProductWeightGradient& step, State& s) {
  const std::size_t batch = s.shape(step.x).batch, in = s.shape(step.x).features(),
                    out = s.shape(step.dy).features();
  const double *x = s[step.x].data(), *dy = s[step.dy].data();
  double* dw = &s.gradients[step.w.first];
  std::fill_n(dw, step.w.count, 0);
  for (std::size_t n = 0; n < batch; ++n)
    for (std::size_t o = 0; o < out; ++o)
      for (std::size_t i = 0; i < in; ++i) dw[o * in + i] += x[n * in + i] * dy[n * out + o];
  if (!step.b) return;
  double* db = &s.gradients[step.b->first];
  std::fill_n(db, out, 0);
  for (std::size_t n = 0; n < batch; ++n)
    for (std::size_t o = 0; o < out; ++o) db[o] += dy[n * out + o];
}

}  // namespace ringtrain::compute::reference
