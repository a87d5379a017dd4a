#include "ringtrain/monitor/load_imbalance.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace ringtrain::monitor {

namespace {

template <class Value>
metrics::RankStatistics over(std::span<const int> ranks,
                             std::span<const metrics::PhaseSeconds> steps, const Value& value) {
  std::vector<double> values;
  for (const metrics::PhaseSeconds& step : steps) values.push_back(value(step));
  const auto [least, most] = std::ranges::minmax_element(values);
  return {*least, lower_median(values), *most,
          ranks[static_cast<std::size_t>(most - values.begin())]};
}

}  // namespace

std::optional<metrics::PhaseSpread> LoadImbalance::look(std::span<const RankStats> now) {
  before_.resize(now.size());
  std::vector<int> ranks;
  std::vector<metrics::PhaseSeconds> steps;
  for (std::size_t r = 0; r < now.size(); ++r) {
    const PhaseTotals& spent = now[r].spent;
    if (spent.steps == 0) continue;
    if (spent.steps < before_[r].steps + least_steps) return std::nullopt;
    ranks.push_back(static_cast<int>(r));
    steps.push_back(mean_step(before_[r], spent));
  }
  if (ranks.size() < 2) return std::nullopt;
  for (const int r : ranks)
    before_[static_cast<std::size_t>(r)] = now[static_cast<std::size_t>(r)].spent;
  metrics::PhaseSpread phases;
  for (std::size_t i = 0; i < phases.phases.size(); ++i)
    phases.phases[i] =
        over(ranks, steps, [i](const metrics::PhaseSeconds& s) { return s.seconds[i]; });
  phases.own_work = over(ranks, steps, own_work_s);
  phases.slowest = slowest(phases, ranks, steps);
  return phases;
}

// Worth a word where the others could be done much sooner without it.
std::string LoadImbalance::slowest(const metrics::PhaseSpread& phases, std::span<const int> ranks,
                                   std::span<const metrics::PhaseSeconds> steps) const {
  constexpr double part_of_step = 0.05;
  const metrics::RankStatistics& work = phases.own_work;
  const double step_s = steps[0].total();
  if (work.max <= tolerated * work.median || work.max - work.median < part_of_step * step_s)
    return {};
  const auto at = static_cast<std::size_t>(std::ranges::find(ranks, work.max_rank) - ranks.begin());
  const Lag lag = worst_lag(at, steps);
  return fmt::format("slowest rank {} ({}): {} {:.1f} ms, median {:.1f}", work.max_rank,
                     hosts_[static_cast<std::size_t>(work.max_rank)],
                     metrics::phase_names(lag.phase).words, 1e3 * lag.seconds, 1e3 * lag.median);
}

namespace {

std::string slow(std::size_t rank, std::span<const metrics::PhaseSeconds> steps, double median_s) {
  const double own_s = own_work_s(steps[rank]);
  const Lag worst = worst_lag(rank, steps);
  return fmt::format(
      "holds up the others: {:.1f} ms of work a step, {:.1f} times the median; most of it in {}: "
      "{:.1f} ms, where the median is {:.1f} ms",
      1e3 * own_s, own_s / median_s, metrics::phase_names(worst.phase).words, 1e3 * worst.seconds,
      1e3 * worst.median);
}

}  // namespace

Stragglers::Stragglers(int ranks)
    : before_(static_cast<std::size_t>(ranks)), told_(before_.size(), false) {}

std::vector<std::string> Stragglers::look(std::span<const PhaseTotals> now,
                                          std::span<const std::string> hosts) {
  std::vector<metrics::PhaseSeconds> steps;
  std::vector<double> own_s;
  for (std::size_t r = 0; r < now.size(); ++r) {
    if (now[r].steps < before_[r].steps + window_steps) return {};
    steps.push_back(mean_step(before_[r], now[r]));
    own_s.push_back(own_work_s(steps.back()));
  }
  before_.assign(now.begin(), now.end());
  const double median_s = lower_median(own_s);
  std::vector<std::string> sentences;
  for (std::size_t r = 0; r < steps.size(); ++r) {
    const bool is_slow = own_s[r] > tolerated * median_s;
    if (is_slow == told_[r]) continue;
    told_[r] = is_slow;
    sentences.push_back(fmt::format("rank {} on {} ", r, hosts[r]) +
                        (is_slow ? slow(r, steps, median_s) : "keeps up again"));
  }
  return sentences;
}

}  // namespace ringtrain::monitor
