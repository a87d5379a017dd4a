#include <fmt/core.h>

#include "ringtrain/metrics/scaling/speedup.hpp"

namespace ringtrain {
namespace {

std::string rate(const Spread& s) { return fmt::format("{:.1f} +- {:.1f}", s.median, s.deviation); }

std::string row(std::string_view what, double alone_s, double together_s) {
  return fmt::format("\n  {:<18} {:>10.2f} {:>10.2f} {:>+12.2f}", what, 1e3 * alone_s,
                     1e3 * together_s, 1e3 * (together_s - alone_s));
}

std::string by_phase(const Comparison& c) {
  constexpr double visible_s = 5e-6;
  std::string table =
      fmt::format("  {:<18} {:>10} {:>10} {:>12}", "ms a step", "alone", "together", "difference");
  for (std::size_t p = 0; p < phase_names.size(); ++p) {
    const double alone_s = c.alone_phases.seconds[p], together_s = c.together_phases.seconds[p];
    if (alone_s > visible_s || together_s > visible_s)
      table += row(phase_words[p], alone_s, together_s);
  }
  return table + row("step", c.alone_phases.total(), c.together_phases.total());
}

}  // namespace

std::vector<std::string> told(const Comparison& c, int ranks) {
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

}  // namespace ringtrain
