#pragma once
#include <memory>
#include <optional>
#include <string>

namespace ringtrain::monitor {

/// Shows how fast a GPU is allowed to run.
class GpuMonitor {
 public:
  struct Reading {
    double clock_hz = 0;  ///< of its multiprocessors
    bool hot = false;     ///< slowed down because of its temperature
    bool short_of_power = false;
  };

  virtual ~GpuMonitor() = default;
  /// Nothing where it does not answer. For one thread at a time.
  virtual std::optional<Reading> read() = 0;
};

/// Monitors the GPU with that PCI bus id through NVIDIA's management library, which each call looks
/// for. Null where that is not there or does not know the GPU.
std::unique_ptr<GpuMonitor> make_gpu_monitor(const std::string& pci_bus_id);

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
