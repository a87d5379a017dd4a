#pragma once
#include <span>
#include <vector>

#include "compute/reference/state.hpp"

namespace ringtrain::reference {

/// What `how` makes of x; also written to Activation::y where that is asked for.
std::vector<double> activate(const Activation& how, const std::vector<double>& x, State& s);

/// (sum of x, sum of x^2) by channel.
std::vector<double> sums_of(const std::vector<double>& x, int channels);

/// All that BatchNormSums promises of the gradient `dy`.
void reduce_gradient(const BatchNormSums& how, const std::vector<double>& dy, State& s);

}  // namespace ringtrain::reference
