#include "train/hooks/non_finite_guard.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace ringtrain::train {

// All ranks saw the same sums, so all agree in the same step.
void NonFiniteGuard::step_done(const StepReport& report) {
  const StepOutcome& outcome = report.outcome;
  const std::uint64_t step = report.position.step;
  if (outcome.skipped && !outcome.not_finite)
    log_.event_of_all("skipped",
                      fmt::format("step {} left out: its gradients overflow; the loss scale "
                                  "is {:g} now",
                                  step, outcome.loss_scale));
  if (!outcome.not_finite) return;
  const std::string text = fmt::format("{} is not finite in step {} (loss {})",
                                       what_is_not_finite(outcome), step, outcome.loss);
  if (plan_.options.on_nan == config::OnNan::stop) {
    before_end_();
    session_.fail_together(text +
                               "; a lower --lr or a longer --warmup-epochs may help, "
                               "--on-nan skip leaves such steps out",
                           Exit::not_finite);
  }
  log_.event_of_all("not_finite", text + "; left out");
}

std::string NonFiniteGuard::what_is_not_finite(const StepOutcome& outcome) const {
  const auto first = engine_.first_non_finite_gradient();
  if (!first) return std::isfinite(outcome.loss) ? "a gradient" : "the loss";
  const model::Graph& graph = plan_.model.graph;
  const auto ranges = graph.parameter_ranges();
  const auto found = std::ranges::find_if(ranges, [&](const Range& r) { return *first < r.end(); });
  return "the gradient of " + graph.parameters[found - ranges.begin()].name;
}

}  // namespace ringtrain::train
