#pragma once
#include <span>
#include <vector>

#include "compute/reference/state.hpp"

namespace ringtrain::compute::reference {

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
