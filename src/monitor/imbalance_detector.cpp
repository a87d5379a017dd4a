#include "ringtrain/monitor/imbalance_detector.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace ringtrain::monitor {
namespace {

/// The ranks that take part in a window, and the mean step of each in it.
struct Steps {
  std::vector<int> ranks;
  std::vector<metrics::PhaseSeconds> steps;

  std::size_t size() const { return ranks.size(); }
};

template <class Value>
metrics::RankStatistics over(const Steps& all, const Value& value) {
  std::vector<double> values;
  for (const metrics::PhaseSeconds& step : all.steps) values.push_back(value(step));
  const auto [least, most] = std::ranges::minmax_element(values);
  return {*least, lower_median(values), *most,
          all.ranks[static_cast<std::size_t>(most - values.begin())]};
}

metrics::PhaseSpread spread_of(const Steps& all) {
  metrics::PhaseSpread spread;
  for (const metrics::Phase phase : metrics::ledger_phases)
    spread[phase] = over(all, [phase](const metrics::PhaseSeconds& step) { return step[phase]; });
  spread.own_work = over(all, own_work_s);
  return spread;
}

std::string words_of_slowest(const Steps& all, std::size_t place, const std::string& host) {
  const PhaseLag lag = worst_lag(place, all.steps);
  return fmt::format("slowest rank {} ({}): {} {:.1f} ms, median {:.1f}", all.ranks[place], host,
                     metrics::phase_names(lag.phase).words, 1e3 * lag.seconds, 1e3 * lag.median);
}

std::string sentence_of_slow(const Steps& all, std::size_t place, double median_s) {
  const double own_s = own_work_s(all.steps[place]);
  const PhaseLag lag = worst_lag(place, all.steps);
  return fmt::format(
      "holds up the others: {:.1f} ms of work a step, {:.1f} times the median; most of it in {}: "
      "{:.1f} ms, where the median is {:.1f} ms",
      1e3 * own_s, own_s / median_s, metrics::phase_names(lag.phase).words, 1e3 * lag.seconds,
      1e3 * lag.median);
}

}  // namespace

std::optional<ImbalanceDetector::Window> ImbalanceDetector::compare(
    std::span<const RankStats> now) {
  Steps all;
  for (std::size_t r = 0; r < now.size(); ++r) {
    const PhaseTotals &before = ranks_.at(r).before, &spent = now[r].spent;
    if (spent.steps == 0) continue;
    if (spent.steps < before.steps + settings_.window_steps) return std::nullopt;
    all.ranks.push_back(static_cast<int>(r));
    all.steps.push_back(mean_step(before, spent));
  }
  if (all.size() < 2) return std::nullopt;

  Window window{spread_of(all), {}};
  const double median_s = window.spread.own_work.median, step_s = all.steps[0].total();
  for (std::size_t place = 0; place < all.size(); ++place) {
    const auto r = static_cast<std::size_t>(all.ranks[place]);
    Rank& rank = ranks_[r];
    rank.before = now[r].spent;
    const bool slow = is_slow(own_work_s(all.steps[place]), median_s, step_s, settings_.tolerance);
    if (slow && all.ranks[place] == window.spread.own_work.max_rank)
      window.spread.slowest_text = words_of_slowest(all, place, hosts_[r]);
    if (std::exchange(rank.slow, slow) == slow) continue;
    window.events.push_back(
        fmt::format("rank {} on {} {}", r, hosts_[r],
                    slow ? sentence_of_slow(all, place, median_s) : std::string("keeps up again")));
  }
  return window;
}

}  // namespace ringtrain::monitor
