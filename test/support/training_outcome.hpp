#pragma once
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "compute/reference/state.hpp"
#include "ringtrain/model/graph.hpp"
#include "support/catch.hpp"

namespace ringtrain {

/// What one training step comes to.
struct Outcome {
  double loss = 0;
  std::vector<double> gradients, batch_statistics;
};

inline constexpr double poison = std::numeric_limits<double>::quiet_NaN();

/// Runs `schedule` by the reference in memory that is worthless whenever plan_memory may give it to
/// others, and checks that gradients do not change once they are final.
inline Outcome train_once(const compute::Schedule& schedule, const std::vector<double>& parameters,
                          const Batch& batch) {
  compute::reference::State s(schedule, 7);
  s.parameters = parameters;
  s.batch = &batch;
  s.sample_weight = 1.0 / batch.size();
  for (auto* all : {&s.tensors, &s.vectors})
    for (auto& values : *all) std::ranges::fill(values, poison);
  for (auto* all : {&s.gradients, &s.batch_statistics}) std::ranges::fill(*all, poison);
  std::vector<std::size_t> last(schedule.tensors.size());
  for (std::size_t i = 0; i < schedule.steps.size(); ++i)
    compute::for_each_tensor(schedule.steps[i], [&](compute::TensorId id, compute::Access) {
      last[schedule.place_of(id).of] = i;
    });
  const std::vector<std::size_t> final_from = compute::finality(schedule);
  std::vector<double> published(schedule.parameters, poison);

  std::size_t known = schedule.parameters;
  for (std::size_t i = 0; i < schedule.steps.size(); ++i) {
    compute::reference::run_step(schedule.steps[i], s);
    compute::for_each_tensor(schedule.steps[i], [&](compute::TensorId id, compute::Access) {
      const compute::TensorId held = schedule.place_of(id).of;
      if (last[held] == i) std::ranges::fill(s[held], poison);
      if (held != id) std::ranges::fill(s[id], poison);
    });
    for (; i >= schedule.backward && known > final_from[i]; --known)
      published[known - 1] = s.gradients[known - 1];
  }

  CHECK(published == s.gradients);  // no number is unequal to itself: all were written
  return {s.result.loss, published, s.batch_statistics};
}

inline void check_close(const std::vector<double>& actual, const std::vector<double>& expected,
                        Range range, const std::string& name) {
  double difference = 0, largest = 0;
  bool finite = true;
  for (std::size_t i = range.first; i < range.end(); ++i) {
    finite = finite && std::isfinite(actual[i]);
    difference = std::max(difference, std::abs(actual[i] - expected[i]));
    largest = std::max(largest, std::abs(expected[i]));
  }
  CAPTURE(name, difference, largest);
  CHECK(finite);
  CHECK(difference <= 1e-9 * largest + 1e-14);  // a beta before another BatchNorm has gradient 0
}

inline void check_agree(const model::Graph& graph, const Outcome& actual, const Outcome& expected) {
  CHECK(actual.loss == Approx(expected.loss).epsilon(1e-9));
  for (std::size_t p = 0; p < graph.parameters.size(); ++p)
    check_close(actual.gradients, expected.gradients, graph.parameter_ranges()[p],
                graph.parameters[p].name);
  for (std::size_t i = 0; i < graph.statistics.size(); ++i)
    check_close(actual.batch_statistics, expected.batch_statistics, graph.statistics_ranges()[i],
                graph.statistics[i].name);
}

}  // namespace ringtrain
