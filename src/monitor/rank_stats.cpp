#include "ringtrain/monitor/rank_stats.hpp"

#include <algorithm>

namespace ringtrain::monitor {

RankStats between(const RankStats& before, const RankStats& now) {
  RankStats difference = now;
  difference.spent.steps -= before.spent.steps;
  for (std::size_t i = 0; i < now.spent.phases.seconds.size(); ++i)
    difference.spent.phases.seconds[i] -= before.spent.phases.seconds[i];
  difference.system.seconds -= before.system.seconds;
  for (std::size_t i = 0; i < metric_count; ++i) difference.system.sums[i] -= before.system.sums[i];
  return difference;
}

RankStats& operator+=(RankStats& sum, const RankStats& more) {
  sum.spent.steps += more.spent.steps;
  for (std::size_t i = 0; i < sum.spent.phases.seconds.size(); ++i)
    sum.spent.phases.seconds[i] += more.spent.phases.seconds[i];
  sum.system.seconds += more.system.seconds;
  for (std::size_t i = 0; i < metric_count; ++i) sum.system.sums[i] += more.system.sums[i];
  return sum;
}

metrics::PhaseSeconds mean_step(const PhaseTotals& before, const PhaseTotals& now) {
  metrics::PhaseSeconds step;
  for (std::size_t i = 0; i < step.seconds.size(); ++i)
    step.seconds[i] = (now.phases.seconds[i] - before.phases.seconds[i]) /
                      static_cast<double>(now.steps - before.steps);
  return step;
}

double own_work_s(const metrics::PhaseSeconds& step) {
  double sum = 0;
  for (const metrics::Phase phase : own_work) sum += step[phase];
  return sum;
}

bool is_slow(double own_s, double median_s, double step_s, const Tolerance& tolerance) {
  return own_s > tolerance.times_median * median_s &&
         own_s - median_s >= tolerance.part_of_step * step_s;
}

double lower_median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

PhaseLag worst_lag(std::size_t rank, std::span<const metrics::PhaseSeconds> steps) {
  PhaseLag worst;
  for (const metrics::Phase phase : own_work) {
    std::vector<double> all;
    for (const metrics::PhaseSeconds& step : steps) all.push_back(step[phase]);
    const double median = lower_median(std::move(all)), seconds = steps[rank][phase];
    if (seconds - median > worst.seconds - worst.median) worst = {phase, seconds, median};
  }
  return worst;
}

}  // namespace ringtrain::monitor
