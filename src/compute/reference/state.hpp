#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "ringtrain/base/batch.hpp"
#include "ringtrain/compute/backend.hpp"
#include "ringtrain/compute/step.hpp"

namespace ringtrain::compute::reference {

/// Everything a step may read or write, in double precision; tensors are dense, height, width and
/// channels from slow to fast. A slice's own values are those that the last step saw in it. Tests
/// set and read it directly.
struct State {
  struct Moments {
    std::vector<double> mean, variance;
    double count;  ///< pixels, perhaps of all ranks
  };

  State(const Schedule& schedule, std::uint64_t dropout_seed);

  /// Over all ranks, which exchange floats.
  void sum_over_ranks(std::vector<double>& values) const;

  const Shape& shape(TensorId id) const { return shapes[id]; }
  std::vector<double>& operator[](TensorId id) { return tensors[id]; }

  std::vector<Shape> shapes;
  std::map<TensorId, Slice> slices;
  std::vector<std::vector<double>> tensors, vectors;
  std::vector<double> parameters, gradients, statistics, batch_statistics;
  std::map<TensorId, Moments> moments;  ///< of each BatchNormForward, by its input
  std::uint64_t seed;
  const Batch* batch = nullptr;
  Program::SumOverRanks sum;  ///< empty: there is one rank
  double sample_weight = 1;
  StepResult result;
};

/// Executes one kind of step. Each kind has its specialisation, in the file of its operation.
template <class Kind>
void run(const Kind& step, State& state);

/// Executes any step. What it reads of slices comes from the tensors that they are part of, and
/// what it writes goes there.
void run_step(const Step& step, State& state);

/// Calls f(output pixel, input pixel, tap) for every tap of every window that falls inside the
/// image; pixels count over the whole batch, taps in row order.
template <class F>
void for_each_tap(const Shape& x, const Shape& y, const ConvolutionShape& w, F f) {
  for (int n = 0; n < y.batch; ++n)
    for (int oy = 0; oy < y.height; ++oy)
      for (int ox = 0; ox < y.width; ++ox)
        for (int ky = 0; ky < w.height; ++ky)
          for (int kx = 0; kx < w.width; ++kx) {
            const int iy = oy * w.stride_y + ky * w.dilation - w.top,
                      ix = ox * w.stride_x + kx * w.dilation - w.left;
            if (iy < 0 || iy >= x.height || ix < 0 || ix >= x.width) continue;
            f((std::size_t(n) * y.height + oy) * y.width + ox,
              (std::size_t(n) * x.height + iy) * x.width + ix, std::size_t(ky) * w.width + kx);
          }
}

/// f(x), and f'(x) by what a backward step is given: the output or the input, as ActivationFacts
/// says. slope_at() is given the input always.
double value_of(Activation f, double x);
double slope_of(Activation f, double saved);
inline double slope_at(Activation f, double x) {
  return slope_of(f, facts_of(f).slope_of_output ? value_of(f, x) : x);
}

/// What `how` makes of x; also written to AppliedNorm::y where that is asked for.
std::vector<double> activate(const AppliedNorm& how, const std::vector<double>& x, State& s);

/// What `step` reads as its x: that, or what its prologue makes of it.
std::vector<double> read(const auto& step, State& s) {
  return step.prologue ? activate(*step.prologue, s[step.x], s) : s[step.x];
}

/// (sum of x, sum of x^2) by channel.
std::vector<double> sums_of(const std::vector<double>& x, int channels);

/// All that BatchNormSums promises of the gradient `dy`.
void reduce_gradient(const BatchNormSums& how, const std::vector<double>& dy, State& s);

}  // namespace ringtrain::compute::reference
