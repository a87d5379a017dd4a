#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ringtrain::monitor {

/// What is watched on each rank, so that a slow-down can be told together with what moved with it.
enum class SystemMetric : std::uint8_t {
  still,          ///< seconds in which the process was stopped or not scheduled
  throttled,      ///< seconds in which its CPU quota held it up
  stolen,         ///< CPU seconds that the hypervisor gave to others
  others,         ///< CPU seconds of other processes on the host, its other ranks among them
  runnable,       ///< tasks on the host that have a CPU or want one
  preempted,      ///< times that a thread of the process had to give up its CPU
  no_cpu,         ///< seconds of its own work in which the training thread did not run
  disk_waits,     ///< CPU seconds without work but for waiting for a disk
  major_faults,   ///< pages that had to be read from a disk
  resident,       ///< bytes of memory
  network,        ///< bytes, in and out, of all interfaces but loopback
  network_lost,   ///< packets that interfaces dropped or found damaged
  retransmitted,  ///< TCP segments that were sent again
  allowance,      ///< packets that an instance's network allowance held up
  round_trip,     ///< seconds, of the slowest TCP connection of the process
  sending,        ///< seconds in which data was under way to other hosts
  gpu_clock,      ///< hertz
  gpu_hot,        ///< seconds in which heat slowed the GPU down
  gpu_power,      ///< seconds in which a limit of power slowed it down
  own_cpu,        ///< CPU seconds of the process; never told
};
inline constexpr std::size_t metric_count = 20;

/// Sums since the process began. What has a value rather than a count is summed over time, so that
/// for all of them a difference over the seconds between is the mean. What a host does not show is
/// not a number, and never worse.
struct SystemSample {
  double seconds = 0;  ///< of the clock
  std::array<double, metric_count> sums{};

  double& operator[](SystemMetric metric) { return sums[static_cast<std::size_t>(metric)]; }
  double operator[](SystemMetric metric) const { return sums[static_cast<std::size_t>(metric)]; }
};

/// The time between two looks at a rank.
struct SampleSpan {
  SystemSample begin, end;

  double seconds() const { return end.seconds - begin.seconds; }
  /// The mean over the time; there is some.
  double mean(SystemMetric metric) const { return (end[metric] - begin[metric]) / seconds(); }
};

/// Something that got worse.
struct MetricChange {
  SystemMetric metric = SystemMetric::still;
  std::string text;         ///< "times preempted 12 -> 860 a second"
  std::string_view advice;  ///< what a user can do about it
};

/// What is worse in `since` than in `before`, in the order of SystemMetric: what tells most comes
/// first. Nothing where one of the spans is empty.
std::vector<MetricChange> worse(const SampleSpan& before, const SampleSpan& since);

std::string_view advice_for(SystemMetric metric);

/// In words, what would have been noticed if it had become worse. Without what is not there: a GPU
/// or, on a job of one host, a network.
std::string watched_metrics(const SystemSample& rank, bool several_hosts);

}  // namespace ringtrain::monitor
