#include "ringtrain/metrics/scaling/speedup.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "ringtrain/base/error.hpp"

namespace ringtrain::metrics {

namespace {

constexpr double good = 0.9, fair = 0.7, unsteady = 0.05;

// The phase that grew most, if one did.
std::string worst(const ScalingResult& c) {
  const auto grown = [&](Phase phase) { return c.together_phases[phase] - c.alone_phases[phase]; };
  const Phase most = std::ranges::max(ledger_phases, {}, grown);
  if (grown(most) <= 0) return "No phase takes longer together: measure longer.";
  return fmt::format("Most of the rest is {}: {:.2f} ms a step more than alone.",
                     phase_names(most).table, 1e3 * grown(most));
}

std::string judged(const ScalingResult& c, int ranks) {
  const std::string ratio =
      fmt::format("{:.2f} +- {:.2f}", c.speed_up.median, c.speed_up.deviation);
  if (ranks == 1) return fmt::format("1 rank alone: {:.1f} examples/s.", c.alone.median);
  if (c.speed_up.median < 1)
    return fmt::format(
        "{} ranks are slower than one: {} times its speed. Train with one rank until that is "
        "mended. {}",
        ranks, ratio, worst(c));
  const std::string numbers =
      fmt::format("{} ranks are {} times as fast as one, efficiency {:.0f} %", ranks, ratio,
                  100 * c.efficiency);
  if (c.efficiency >= good) return numbers + ": good.";
  return fmt::format("{}: {}. {}", numbers, c.efficiency >= fair ? "fair" : "poor", worst(c));
}

double jitter(const std::vector<double>& step_s) {
  const Spread spread = spread_of(step_s);
  return spread.median > 0 ? spread.deviation / spread.median : 0;
}

}  // namespace

ScalingResult compare(const Windows& alone, const Windows& together, int ranks) {
  expects(!alone.rates.empty() && alone.rates.size() == together.rates.size() && ranks > 0,
          "compare: as many windows alone as together, and ranks");
  std::vector<double> ratios;
  for (std::size_t i = 0; i < alone.rates.size(); ++i) {
    expects(alone.rates[i] > 0, "compare: windows in which one rank trained");
    ratios.push_back(together.rates[i] / alone.rates[i]);
  }
  ScalingResult c{.alone = spread_of(alone.rates),
                  .together = spread_of(together.rates),
                  .speed_up = spread_of(ratios),
                  .alone_jitter = jitter(alone.step_s),
                  .together_jitter = jitter(together.step_s),
                  .alone_phases = alone.phases,
                  .together_phases = together.phases};
  c.efficiency = c.speed_up.median / ranks;
  const double alone_s = alone.phases.total();
  const double update_share = alone_s > 0 ? alone.phases[Phase::update] / alone_s : 0;
  c.strong_efficiency = c.efficiency * (1 - update_share * (ranks - 1) / ranks);
  c.verdict = judged(c, ranks);
  if (c.speed_up.deviation > unsteady * c.speed_up.median)
    c.verdict +=
        fmt::format(" Windows differ by {:.0f} %: measure longer, or on a quieter machine.",
                    100 * c.speed_up.deviation / c.speed_up.median);
  return c;
}

namespace {

std::string rate(const Spread& s) { return fmt::format("{:.1f} +- {:.1f}", s.median, s.deviation); }

std::string row(std::string_view what, double alone_s, double together_s) {
  return fmt::format("\n  {:<18} {:>10.2f} {:>10.2f} {:>+12.2f}", what, 1e3 * alone_s,
                     1e3 * together_s, 1e3 * (together_s - alone_s));
}

std::string by_phase(const ScalingResult& c) {
  constexpr double visible_s = 5e-6;
  std::string table =
      fmt::format("  {:<18} {:>10} {:>10} {:>12}", "ms a step", "alone", "together", "difference");
  for (const Phase phase : ledger_phases) {
    const double alone_s = c.alone_phases[phase], together_s = c.together_phases[phase];
    if (alone_s > visible_s || together_s > visible_s)
      table += row(phase_names(phase).table, alone_s, together_s);
  }
  return table + row("step", c.alone_phases.total(), c.together_phases.total());
}

}  // namespace

std::vector<std::string> speedup_lines(const ScalingResult& c, int ranks) {
  return {fmt::format("baseline: one rank {} examples/sec, {} {}, speed-up {:.2f} +- {:.2f}, "
                      "efficiency {:.1f} %",
                      rate(c.alone), ranks_text(ranks), rate(c.together), c.speed_up.median,
                      c.speed_up.deviation, 100 * c.efficiency),
          fmt::format("  steps vary by {:.1f} % alone, {:.1f} % together; efficiency for a step of "
                      "the same size alone {:.1f} %",
                      100 * c.alone_jitter, 100 * c.together_jitter, 100 * c.strong_efficiency),
          by_phase(c), c.verdict};
}

std::string ranks_text(int ranks) { return fmt::format("{} rank{}", ranks, ranks == 1 ? "" : "s"); }

}  // namespace ringtrain::metrics
