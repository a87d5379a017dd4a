#pragma once
#include <cmath>
#include <span>

#include "compute/reference/state.hpp"
#include "ringtrain/base/philox.hpp"
#include "support/catch.hpp"

namespace ringtrain::compute::reference {

/// Fills with reproducible normal numbers.
inline void fill_normal(std::span<double> values, std::uint64_t seed) {
  Philox random(seed, Purpose::initialise);
  for (double& v : values) v = random.normal();
}

/// Central differences of the scalar sum(r * y) by each of `values`, against `analytic`.
template <class Forward>
void check_derivative(compute::reference::State& s, compute::TensorId y, std::span<const double> r,
                      std::span<double> values, std::span<const double> analytic, Forward forward) {
  const auto objective = [&] {
    forward();
    double sum = 0;
    for (std::size_t i = 0; i < r.size(); ++i) sum += r[i] * s[y][i];
    return sum;
  };
  REQUIRE(values.size() == analytic.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double h = 1e-5, kept = values[i];
    values[i] = kept + h;
    const double above = objective();
    values[i] = kept - h;
    const double below = objective();
    values[i] = kept;
    CAPTURE(i);
    REQUIRE((above - below) / (2 * h) == Approx(analytic[i]).margin(1e-6).epsilon(1e-6));
  }
  forward();
}

}  // namespace ringtrain::compute::reference
