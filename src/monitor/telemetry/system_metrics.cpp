#include "ringtrain/monitor/telemetry/system_metrics.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <cmath>
#include <limits>

namespace ringtrain::monitor {
namespace {

/// Where a metric is looked at.
enum class On { host, network, gpu };

/// How a metric is reported, and how much of it is worth a report.
struct Kind {
  std::string_view words, unit;
  double scale;           // to the unit
  double least;           // change, in the unit
  std::string_view name;  // among what did not move; empty: it is not named there
  std::string_view advice;
  On on = On::host;
  bool falls = false;  // is worse when it falls
  double times = 1.3;  // as much: less is no change
};

constexpr std::string_view other_work =
    "end what else wants its CPUs (top shows it), or give the ranks CPUs of their own";
constexpr std::string_view bad_link =
    "look at its network card, cable and switch port (ethtool, ethtool -S)";
constexpr std::string_view full_link =
    "see what else uses its link and whether it runs at full speed (ethtool), or send less: "
    "--gradient-dtype bf16";

constexpr std::array<Kind, metric_count> kinds = {{
    {"the process stood still", "% of the time", 100, 5, "stopped or unscheduled processes",
     "find what stops it: a debugger, a frozen container, or more busy threads than CPUs"},
    {"held up by its CPU quota", "% of the time", 100, 5, "CPU quotas",
     "raise the CPU limit of its container or control group (cpu.max), or lower --threads"},
    {"CPUs taken by the hypervisor", "of the host's", 1, 0.1, "stolen CPU time",
     "its virtual machine shares CPUs with others: take another instance, or a dedicated one"},
    {"CPUs used by other processes", "of the host's", 1, 0.25, "other processes", other_work},
    {"tasks that want a CPU", "on the host", 1, 1, "", other_work},
    {"times preempted", "a second", 1, 100, "", other_work},
    {"the training thread had no CPU", "% of the time", 100, 5, "",
     "find what stops it or takes its CPUs (top, a debugger, a frozen container)"},
    {"CPUs waiting for disks", "of the host's", 1, 0.1, "waits for disks",
     "look at its disks (iostat -x 1)"},
    {"pages read back from disk", "a second", 1, 10, "paging",
     "the host lacks memory (free -m): use fewer ranks or --data-threads there"},
    {"memory", "MB", 1e-6, 200, "", "see what takes its memory (free -m)"},
    {"network", "MB/s", 1e-6, 1, "", full_link, On::network, true},
    {"packets lost at interfaces", "a second", 1, 1, "lost packets", bad_link, On::network},
    {"TCP segments sent again", "a second", 1, 5, "", bad_link, On::network},
    {"packets over the instance's network allowance", "a second", 1, 1, "",
     "take an instance type with more network, or send less: --gradient-dtype bf16", On::network},
    {"slowest round trip", "ms", 1e3, 1, "round trips", full_link, On::network},
    {"data under way to other hosts", "% of the time", 100, 20, "", full_link, On::network},
    {"GPU clock", "MHz", 1e-6, 100, "GPU clocks",
     "nvidia-smi -q -d PERFORMANCE says why its clock is low", On::gpu, true, 1.05},
    {"GPU slowed down by heat", "% of the time", 100, 10, "GPU heat",
     "cool it: fans, air flow, a free slot beside it", On::gpu},
    {"GPU slowed down by its power limit", "% of the time", 100, 10, "GPU power limits",
     "raise its power limit (nvidia-smi -pl)", On::gpu},
    {"CPUs of its own", "", 1, std::numeric_limits<double>::infinity(), "", ""},
}};

std::string shown(double value) {
  return value < 1000 ? fmt::format("{:.3g}", value) : fmt::format("{:.0f}", value);
}

bool is_worse(const Kind& kind, double before, double now) {
  const double low = kind.falls ? now : before, high = kind.falls ? before : now;
  return high - low >= kind.least && high >= kind.times * low;
}

}  // namespace

std::vector<MetricChange> worse(const SampleSpan& before, const SampleSpan& since) {
  std::vector<MetricChange> moved;
  if (before.seconds() <= 0 || since.seconds() <= 0) return moved;
  for (std::size_t i = 0; i < metric_count; ++i) {
    const auto metric = static_cast<SystemMetric>(i);
    const Kind& kind = kinds[i];
    const double then = kind.scale * before.mean(metric), now = kind.scale * since.mean(metric);
    if (is_worse(kind, then, now))
      moved.push_back(
          {metric, fmt::format("{} {} -> {} {}", kind.words, shown(then), shown(now), kind.unit),
           kind.advice});
  }
  return moved;
}

std::string_view advice_for(SystemMetric metric) {
  return kinds[static_cast<std::size_t>(metric)].advice;
}

std::string watched_metrics(const SystemSample& rank, bool several_hosts) {
  std::vector<std::string_view> names;
  for (std::size_t i = 0; i < metric_count; ++i) {
    const Kind& kind = kinds[i];
    const bool is_there = kind.on == On::host || (kind.on == On::network && several_hosts) ||
                          (kind.on == On::gpu && rank[SystemMetric::gpu_clock] > 0);
    const bool can_be_read = !std::isnan(rank.sums[i]);
    if (is_there && can_be_read && !kind.name.empty()) names.push_back(kind.name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace ringtrain::monitor
