#include "ringtrain/model/graph.hpp"

#include <functional>
#include <numeric>

namespace ringtrain {
namespace {

// Flat ranges of the given lengths, one after the other.
template <class Items, class Length>
std::vector<Range> consecutive(const Items& items, Length length) {
  std::vector<Range> ranges;
  std::size_t first = 0;
  for (const auto& item : items) {
    ranges.push_back({first, length(item)});
    first += length(item);
  }
  return ranges;
}

}  // namespace

std::size_t Parameter::count() const {
  return std::accumulate(dims.begin(), dims.end(), std::size_t{1}, std::multiplies{});
}

std::vector<ParameterRange> Graph::parameter_ranges() const {
  return consecutive(parameters, [](const Parameter& p) { return p.count(); });
}

std::vector<StatisticsRange> Graph::statistics_ranges() const {
  return consecutive(statistics, [](const Statistic& s) { return 2 * s.channels; });
}

std::size_t Graph::parameter_count() const {
  return parameters.empty() ? 0 : parameter_ranges().back().end();
}

std::size_t Graph::statistic_count() const {
  return statistics.empty() ? 0 : statistics_ranges().back().end();
}

double Graph::multiply_adds() const {
  double sum = 0;
  for (const Node& node : nodes) {
    if (const auto* c = std::get_if<Convolution>(&node.operation))
      sum += double(tensors[node.output].pixels()) * double(parameters[c->w].count());
    if (const auto* m = std::get_if<MatrixProduct>(&node.operation))
      sum += double(parameters[m->w].count());
  }
  return sum;
}

}  // namespace ringtrain
