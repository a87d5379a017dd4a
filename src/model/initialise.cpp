#include <algorithm>
#include <cmath>

#include "ringtrain/base/philox.hpp"
#include "ringtrain/model/zoo.hpp"

namespace ringtrain::model {
namespace {

double draw(const Initialiser& how, Philox& random) {
  switch (how.kind) {
    case Initialiser::Kind::constant:
      return how.value;
    case Initialiser::Kind::whitening:
      return 0;
    case Initialiser::Kind::normal:
      return how.value * random.normal();
    case Initialiser::Kind::uniform:
      return how.value * (2.0 * random.uniform() - 1);
    case Initialiser::Kind::truncated_normal:
      break;
  }
  double z = random.normal();
  while (std::abs(z) > 2) z = random.normal();
  return how.value * z;
}

// out x height x width x in
void set_dirac(const std::vector<std::size_t>& dims, std::span<float> weights) {
  const std::size_t filter = dims[1] * dims[2] * dims[3];
  const std::size_t centre = (dims[1] / 2 * dims[2] + dims[2] / 2) * dims[3];
  for (std::size_t c = 0; c < std::min(dims[0], dims[3]); ++c) {
    std::ranges::fill(weights.subspan(c * filter, filter), 0.0f);
    weights[c * filter + centre + c] = 1;
  }
}

}  // namespace

void initialise(const Graph& graph, std::uint64_t seed, std::span<float> parameters,
                std::span<float> statistics, WorkProgress* progress) {
  constexpr std::size_t piece = 1 << 20;  // some 30 ms
  const auto ranges = graph.parameter_ranges();
  for (std::size_t p = 0; p < ranges.size(); ++p) {
    Philox random(seed, Purpose::initialise, static_cast<std::uint32_t>(p));
    for (std::size_t i = 0; i < ranges[p].count; ++i) {
      parameters[ranges[p].first + i] =
          static_cast<float>(draw(graph.parameters[p].initial, random));
      if (i % piece == 0) advance(progress);
    }
    const Parameter& parameter = graph.parameters[p];
    if (parameter.initial.dirac)
      set_dirac(parameter.dims, parameters.subspan(ranges[p].first, ranges[p].count));
  }
  for (const compute::StatisticsRange& range : graph.statistics_ranges())
    for (std::size_t i = 0; i < range.count; ++i)
      statistics[range.first + i] = i < range.count / 2 ? 0.0f : 1.0f;
}

}  // namespace ringtrain::model
