#include "ringtrain/base/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace ringtrain {
namespace {

double median(std::vector<double>& values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

}  // namespace

Spread spread_of(std::vector<double> values) {
  const double center = median(values);
  for (double& value : values) value = std::abs(value - center);
  return {center, 1.4826 * median(values)};
}

double median_of(std::vector<double> values) { return spread_of(std::move(values)).median; }

}  // namespace ringtrain
