#include "ringtrain/train/baseline.hpp"

#include <fmt/core.h>

#include "ringtrain/base/error.hpp"

namespace ringtrain {
namespace {

constexpr double good = 0.9, fair = 0.7, unsteady = 0.05;

std::string judged(const Comparison& c, int ranks) {
  const std::string ratio =
      fmt::format("{:.2f} +- {:.2f}", c.speed_up.median, c.speed_up.deviation);
  if (ranks == 1) return fmt::format("1 rank alone: {:.1f} examples/s.", c.alone.median);
  if (c.speed_up.median < 1)
    return fmt::format(
        "{} ranks are slower than one: {} times its speed. Train with one rank until "
        "the largest phase below is mended.",
        ranks, ratio);
  const std::string numbers =
      fmt::format("{} ranks are {} times as fast as one, efficiency {:.0f} %", ranks, ratio,
                  100 * c.efficiency);
  if (c.efficiency >= good) return numbers + ": good.";
  return fmt::format("{}: {}. The phases below say where the rest goes.", numbers,
                     c.efficiency >= fair ? "fair" : "poor");
}

}  // namespace

Comparison compare(const std::vector<double>& alone, const std::vector<double>& together,
                   int ranks) {
  expects(!alone.empty() && alone.size() == together.size() && ranks > 0,
          "compare: as many windows alone as together, and ranks");
  std::vector<double> ratios;
  for (std::size_t i = 0; i < alone.size(); ++i) {
    expects(alone[i] > 0, "compare: windows in which one rank trained");
    ratios.push_back(together[i] / alone[i]);
  }
  Comparison c{.alone = spread_of(alone),
               .together = spread_of(together),
               .speed_up = spread_of(ratios),
               .efficiency = 0,
               .verdict = ""};
  c.efficiency = c.speed_up.median / ranks;
  c.verdict = judged(c, ranks);
  if (c.speed_up.deviation > unsteady * c.speed_up.median)
    c.verdict +=
        fmt::format(" Windows differ by {:.0f} %: measure longer, or on a quieter machine.",
                    100 * c.speed_up.deviation / c.speed_up.median);
  return c;
}

}  // namespace ringtrain
