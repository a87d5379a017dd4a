#pragma once
#include <cmath>
#include <vector>

#include "ringtrain/base/philox.hpp"
#include "ringtrain/model/graph.hpp"

namespace ringtrain {

/// Weights that keep every branch alive; the zoo begins with gamma = 0 in places. Values that fp32
/// holds.
inline std::vector<double> some_parameters(const model::Graph& graph) {
  std::vector<double> values(graph.parameter_count());
  const auto ranges = graph.parameter_ranges();
  for (std::size_t p = 0; p < ranges.size(); ++p) {
    const model::Parameter& parameter = graph.parameters[p];
    const double fan_in =
        parameter.dims.size() > 1 ? double(parameter.count()) / double(parameter.dims[0]) : 25;
    Philox random(p, Purpose::initialise);
    for (std::size_t i = ranges[p].first; i < ranges[p].end(); ++i)
      values[i] = static_cast<float>((parameter.role == model::Parameter::Role::gamma ? 1 : 0) +
                                     random.normal() / std::sqrt(fan_in));
  }
  return values;
}

}  // namespace ringtrain
