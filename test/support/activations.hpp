#pragma once
#include <cmath>
#include <iterator>
#include <numbers>

#include "ringtrain/compute/operation.hpp"
#include "support/catch.hpp"

namespace ringtrain {

/// Every activation, `none` too.
inline compute::Activation any_activation() {
  return static_cast<compute::Activation>(
      GENERATE(range(0, static_cast<int>(std::size(compute::activation_facts)))));
}

/// The exact GELU and its slope. Between -6 and -4, 1 + erf(x / sqrt(2)) has no digits in fp32.
struct ExactGelu {
  explicit ExactGelu(long double x)
      : value(x * std::erfc(-x / std::numbers::sqrt2_v<long double>) / 2),
        slope(value / x + x * std::exp(-x * x / 2) * std::numbers::inv_sqrtpi_v<long double> /
                              std::numbers::sqrt2_v<long double>) {}
  long double value, slope;
};
inline double far_below_zero(double v) { return std::sin(v) - 5; }
inline void check_digits(double actual, long double expected, double tolerance = 1e-5) {
  CHECK(static_cast<double>(std::abs(actual / expected - 1)) < tolerance);
}

inline compute::Activation relu_if(bool relu) {
  return relu ? compute::Activation::relu : compute::Activation::none;
}

}  // namespace ringtrain
