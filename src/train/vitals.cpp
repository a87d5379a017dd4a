#include "train/vitals.hpp"

#include <fmt/core.h>

namespace ringtrain {
namespace {

/// How a vital is told, and how much of it is worth telling.
struct Kind {
  std::string_view words, unit;
  double scale;        // to the unit
  double least;        // change, in the unit
  bool falls = false;  // is worse when it falls
  double times = 1.3;  // as much: less is no change
};

constexpr std::array<Kind, vital_count> kinds = {{
    {"the process stood still", "% of the time", 100, 10},
    {"held up by its CPU quota", "% of the time", 100, 10},
    {"CPUs taken by the hypervisor", "of the host's", 1, 0.1},
    {"CPUs used by other processes", "of the host's", 1, 0.25},
    {"tasks that want a CPU", "on the host", 1, 1},
    {"times preempted", "a second", 1, 100},
    {"CPUs waiting for disks", "of the host's", 1, 0.1},
    {"pages read back from disk", "a second", 1, 10},
    {"memory", "MB", 1e-6, 200},
    {"network", "MB/s", 1e-6, 1, true},
    {"packets lost at interfaces", "a second", 1, 1},
    {"TCP segments sent again", "a second", 1, 5},
    {"packets over the instance's network allowance", "a second", 1, 1},
    {"slowest round trip", "ms", 1e3, 1},
    {"data under way to other hosts", "% of the time", 100, 20},
    {"GPU clock", "MHz", 1e-6, 100, true, 1.05},
    {"GPU slowed down by heat", "% of the time", 100, 10},
    {"GPU slowed down by its power limit", "% of the time", 100, 10},
}};

double mean(const Vitals& from, const Vitals& to, std::size_t vital) {
  return kinds[vital].scale * (to.sums[vital] - from.sums[vital]) / (to.seconds - from.seconds);
}

std::string shown(double value) {
  return value < 1000 ? fmt::format("{:.3g}", value) : fmt::format("{:.0f}", value);
}

bool is_worse(const Kind& kind, double before, double now) {
  const double low = kind.falls ? now : before, high = kind.falls ? before : now;
  return high - low >= kind.least && high >= kind.times * low;
}

}  // namespace

std::vector<Moved> worse(const Vitals& before, const Vitals& start, const Vitals& now) {
  std::vector<Moved> moved;
  if (start.seconds <= before.seconds || now.seconds <= start.seconds) return moved;
  for (std::size_t i = 0; i < vital_count; ++i) {
    const double usual = mean(before, start, i), lately = mean(start, now, i);
    if (is_worse(kinds[i], usual, lately))
      moved.push_back(
          {static_cast<Vital>(i), fmt::format("{} {} -> {} {}", kinds[i].words, shown(usual),
                                              shown(lately), kinds[i].unit)});
  }
  return moved;
}

}  // namespace ringtrain
