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

/// Of the GPU with that PCI bus id, through NVIDIA's management library, which each call looks for;
/// null where it is not there or does not know that GPU.
std::unique_ptr<GpuMonitor> make_gpu_gauge(const std::string& pci_bus_id);

}  // namespace ringtrain::monitor
