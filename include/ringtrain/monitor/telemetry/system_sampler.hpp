#pragma once
// Room `monitor/telemetry`: what the system says of a rank: its processors, memory, disks, network
// and GPU, from /proc, the kernel's TCP and the drivers. SystemSampler adds it up, worse() says
// what moved between two looks.
//
// Threads: one; drivers, which may never answer, are asked on a thread that nobody waits for.
// Collective: nothing.
#include <memory>
#include <utility>

#include "ringtrain/base/clock.hpp"
#include "ringtrain/base/file.hpp"
#include "ringtrain/monitor/telemetry/driver_poller.hpp"
#include "ringtrain/monitor/telemetry/system_metrics.hpp"

namespace ringtrain::monitor {

/// Looks at this process, its host and its GPU. For one thread, but for watch(); throws nothing:
/// what a file does not show is not a number, and what is not there 0. Never waits for a driver.
class SystemSampler {
 public:
  SystemSampler();
  /// The GPU to look at from now on; null: none. From any thread.
  void watch(std::unique_ptr<GpuMonitor> gpu) { drivers_.watch(std::move(gpu)); }
  /// Up to now or, as looking costs some 0.1 ms, to half a second ago. `still_s`: for how long the
  /// process has stood still. `no_cpu_s`: for how long its training thread did not run amid its own
  /// work.
  const SystemSample& look(double still_s, double no_cpu_s);

 private:
  void look_at_host(double seconds);
  void look_at_process(double seconds);
  void look_at_gpu(double seconds);

  const FileDescriptor stat_, load_, memory_, interfaces_, protocols_, quota_;
  DriverPoller drivers_;
  Stopwatch since_last_;
  SystemSample sample_;
};

}  // namespace ringtrain::monitor
