#include <variant>

#include "model/passes/uses.hpp"
#include "ringtrain/model/passes.hpp"

namespace ringtrain::model {
namespace {

// The step that leaves the coefficients of `apply`.
std::size_t reduction_before(const compute::Schedule& schedule,
                             const compute::BatchNormBackwardApply& apply) {
  for (std::size_t s = 0; s < schedule.steps.size(); ++s)
    for (const compute::BatchNormSums& how : compute::reductions_of(schedule.steps[s]))
      if (how.shift == apply.shift) return s;
  return no_step;
}

// A later step like the one at `at` that could as well be there: it reads the same g, and its
// coefficients are known by then. Or no_step.
std::size_t partner_of(const compute::Schedule& schedule, std::size_t at) {
  const auto& first = std::get<compute::BatchNormBackwardApply>(schedule.steps[at]);
  const Uses uses(schedule);
  for (const std::size_t reader : uses.readers[first.g]) {
    const auto* second = std::get_if<compute::BatchNormBackwardApply>(&schedule.steps[reader]);
    if (second && reader > at && reduction_before(schedule, *second) < at) return reader;
  }
  return no_step;
}

void pair(compute::Schedule& schedule, std::size_t at, std::size_t partner,
          const Supports& supports) {
  auto both = std::get<compute::BatchNormBackwardApply>(schedule.steps[at]);
  const auto& second = std::get<compute::BatchNormBackwardApply>(schedule.steps[partner]);
  both.x2 = second.x;
  both.dx2 = second.dx;
  both.g_scale2 = second.g_scale;
  both.x_scale2 = second.x_scale;
  both.shift2 = second.shift;
  if (!supports(schedule, both)) return;
  schedule.steps[at] = both;
  erase_step(schedule, partner);
}

}  // namespace

compute::Schedule pair_batch_norms(compute::Schedule schedule, const Supports& supports) {
  for (std::size_t s = schedule.backward; s < schedule.steps.size(); ++s) {
    if (!std::holds_alternative<compute::BatchNormBackwardApply>(schedule.steps[s])) continue;
    const std::size_t partner = partner_of(schedule, s);
    if (partner != no_step) pair(schedule, s, partner, supports);
  }
  return schedule;
}

}  // namespace ringtrain::model
