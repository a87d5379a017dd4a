#include "ringtrain/metrics/scaling/step_phases.hpp"

#include <algorithm>
#include <numeric>

namespace ringtrain::metrics {
namespace {

constexpr std::size_t warmup_steps = 10;

void accumulate(PhaseSeconds& sum, const PhaseSeconds& more) {
  for (std::size_t i = 0; i < sum.seconds.size(); ++i) sum.seconds[i] += more.seconds[i];
}

}  // namespace

double PhaseSeconds::total() const { return std::accumulate(seconds.begin(), seconds.end(), 0.0); }

PhaseSeconds StepTimes::add_step(PhaseSeconds step, double wall_seconds, double examples,
                                 double sums_seconds) {
  step[Phase::other] += wall_seconds - step.total();
  accumulate(since_mean_, step);
  accumulate(total_, step);
  examples_since_mean_ += examples;
  wall_since_mean_ += wall_seconds;
  sums_since_mean_s_ += sums_seconds;
  total_sums_s_ += sums_seconds;
  ++steps_since_mean_;
  rates_.push_back(wall_seconds > 0 ? examples / wall_seconds : 0);
  return step;
}

StepTimes::Mean StepTimes::take_mean() {
  Mean mean;
  if (steps_since_mean_ > 0) {
    mean.phases = since_mean_;
    for (double& seconds : mean.phases.seconds) seconds /= steps_since_mean_;
    mean.seconds = wall_since_mean_ / steps_since_mean_;
    mean.sums_seconds = sums_since_mean_s_ / steps_since_mean_;
    mean.examples_per_second = wall_since_mean_ > 0 ? examples_since_mean_ / wall_since_mean_ : 0;
  }
  since_mean_ = {};
  examples_since_mean_ = wall_since_mean_ = sums_since_mean_s_ = 0;
  steps_since_mean_ = 0;
  return mean;
}

Spread StepTimes::throughput() const {
  const auto skipped = static_cast<std::ptrdiff_t>(std::min(warmup_steps, rates_.size() / 2));
  return spread_of({rates_.begin() + skipped, rates_.end()});
}

}  // namespace ringtrain::metrics
