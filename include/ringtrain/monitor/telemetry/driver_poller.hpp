#pragma once
#include <memory>
#include <optional>

#include "ringtrain/monitor/telemetry/gpu_monitor.hpp"

namespace ringtrain::monitor {

/// What drivers tell of a GPU and of network cards. They are asked once a second by a thread that
/// nobody waits for, because a driver in trouble may never answer: then its last answer stays.
class DriverPoller {
 public:
  DriverPoller();
  ~DriverPoller();
  DriverPoller(const DriverPoller&) = delete;

  /// The GPU to ask for from now on; null: none. From any thread.
  void watch(std::unique_ptr<GpuMonitor> gpu);
  std::optional<GpuMonitor::Reading> gpu() const;
  /// Packets beyond what Amazon allows, over all network cards.
  double allowance_exceeded() const;

 private:
  struct Shared;
  static void ask(const std::shared_ptr<Shared>& shared);
  void start();

  const std::shared_ptr<Shared> shared_;  // with the thread, which may outlive this object
  bool started_ = false;
};

}  // namespace ringtrain::monitor
