#include "ringtrain/monitor/telemetry/driver_poller.hpp"

#include <sys/prctl.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <utility>

#include "monitor/telemetry/nic_counters.hpp"

namespace ringtrain::monitor {

struct DriverPoller::Shared {
  const NicCounters counters{"_allowance_exceeded"};
  std::mutex asking;  // of the next
  std::unique_ptr<GpuMonitor> gpu_monitor;
  mutable std::mutex mutex;  // of the next two, never held while a driver is asked
  std::optional<GpuMonitor::Reading> gpu;
  double allowance_exceeded = 0;
  std::atomic<bool> ends{false};
};

DriverPoller::DriverPoller() : shared_(std::make_shared<Shared>()) {
  if (!shared_->counters.empty()) start();
}

DriverPoller::~DriverPoller() { shared_->ends = true; }

void DriverPoller::watch(std::unique_ptr<GpuMonitor> gpu) {
  const bool any = gpu != nullptr;
  {
    const std::scoped_lock lock(shared_->asking);
    shared_->gpu_monitor = std::move(gpu);
  }
  if (any && !std::exchange(started_, true)) start();
}

std::optional<GpuMonitor::Reading> DriverPoller::gpu() const {
  const std::scoped_lock lock(shared_->mutex);
  return shared_->gpu;
}

double DriverPoller::allowance_exceeded() const {
  const std::scoped_lock lock(shared_->mutex);
  return shared_->allowance_exceeded;
}

void DriverPoller::start() {
  started_ = true;
  std::thread([shared = shared_] {
    ::prctl(PR_SET_NAME, "driver news");
    while (!shared->ends) {
      ask(shared);
      std::this_thread::sleep_for(std::chrono::seconds(1));
    }
  }).detach();
}

void DriverPoller::ask(const std::shared_ptr<Shared>& shared) {
  const double exceeded = shared->counters.sum();
  std::optional<GpuMonitor::Reading> reading;
  {
    const std::scoped_lock lock(shared->asking);
    if (shared->gpu_monitor) reading = shared->gpu_monitor->read();
  }
  const std::scoped_lock lock(shared->mutex);
  shared->gpu = reading;
  shared->allowance_exceeded = exceeded;
}

}  // namespace ringtrain::monitor
