#pragma once
#include <string_view>

namespace ringtrain::monitor {

// Numbers from texts of /proc and of a control group. Where one is not as expected they are 0: no
// job fails because a kernel tells less.

/// Seconds of all CPUs since the host started.
struct CpuTimes {
  double busy = 0;        ///< with work, of any process
  double stolen = 0;      ///< by the hypervisor
  double disk_waits = 0;  ///< without work but for waiting for a disk
};
/// /proc/stat
CpuTimes host_times(std::string_view text, double ticks_a_second);

/// /proc/loadavg: tasks that have a CPU or want one.
double runnable_tasks(std::string_view text);
/// /proc/self/statm: pages.
double resident_pages(std::string_view text);

struct InterfaceTotals {
  double bytes = 0;  ///< in and out
  double lost = 0;   ///< packets that were dropped or damaged
};
/// /proc/net/dev, of all interfaces but loopback.
InterfaceTotals interface_totals(std::string_view text);

/// /proc/net/snmp: TCP segments that were sent again.
double retransmitted_segments(std::string_view text);

/// cpu.stat of a control group: seconds that its quota held up its threads; not a number where it
/// does not say.
double throttled_s(std::string_view text);

}  // namespace ringtrain::monitor
