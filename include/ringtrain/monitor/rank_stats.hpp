#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "ringtrain/metrics/scaling/step_phases.hpp"
#include "ringtrain/monitor/telemetry/system_metrics.hpp"

namespace ringtrain::monitor {

/// What a rank has spent so far: seconds of all its steps.
struct PhaseTotals {
  std::uint64_t steps = 0;
  metrics::PhaseSeconds phases;
};

/// What a rank tells of itself: sums since its process began. The difference of two tells what
/// happened between them.
struct RankStats {
  PhaseTotals spent;
  SystemSample system;
};

/// What a rank has spent from `before` to `now`.
RankStats between(const RankStats& before, const RankStats& now);
RankStats& operator+=(RankStats& sum, const RankStats& more);

/// The mean step from `before` to `now`, between which there are some.
metrics::PhaseSeconds mean_step(const PhaseTotals& before, const PhaseTotals& now);

/// What a rank does for a step itself: waiting for other ranks is not in it, nor is what only rank
/// 0 does between steps.
inline constexpr std::array own_work = {metrics::Phase::data_wait, metrics::Phase::copy,
                                        metrics::Phase::forward, metrics::Phase::backward,
                                        metrics::Phase::update};
double own_work_s(const metrics::PhaseSeconds& step);

/// How much more than the median of all ranks a rank may work.
struct Tolerance {
  double times_median = 1;
  double part_of_step = 0;
};
/// Whether a rank is slow: it works for longer than is tolerated, and the others wait for it.
/// `own_s` and `median_s` of own work a step, which takes `step_s`.
bool is_slow(double own_s, double median_s, double step_s, const Tolerance& tolerance);

/// The middle value; of two, the lower one. There are some.
double lower_median(std::vector<double> values);

/// The part of its own work in which `rank` is furthest behind the median of all.
struct PhaseLag {
  metrics::Phase phase = metrics::Phase::forward;
  double seconds = 0, median = 0;  ///< a step
};
PhaseLag worst_lag(std::size_t rank, std::span<const metrics::PhaseSeconds> steps);

}  // namespace ringtrain::monitor
