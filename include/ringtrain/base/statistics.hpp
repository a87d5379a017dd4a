#pragma once
#include <cmath>
#include <vector>

namespace ringtrain {

/// A typical value and how far values lie from it: 1.4826 * the median absolute deviation, which is
/// the standard deviation where values are normal and does not mind outliers.
struct Spread {
  double median = 0, deviation = 0;
};

/// Both are 0 for no values.
Spread spread_of(std::vector<double> values);
/// Its median; 0 for no values.
double median_of(std::vector<double> values);

/// `value`, but a NaN without its sign: it is written "nan", not "-nan".
inline double without_nan_sign(double value) { return std::isnan(value) ? std::abs(value) : value; }

}  // namespace ringtrain
