#include "ringtrain/monitor/telemetry/driver_poller.hpp"

#include <dlfcn.h>
#include <sys/prctl.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <utility>

#include "monitor/telemetry/nic_counters.hpp"
#include "ringtrain/base/unique_handle.hpp"

namespace ringtrain::monitor {
namespace {

using NvmlLibrary = UniqueHandle<void*, ::dlclose>;

// What is used of nvml.h; drivers keep it as it is.
using NvmlDevice = struct nvmlDevice_st*;
constexpr int success = 0;
constexpr int sm_clock = 1;
constexpr unsigned long long software_power_cap = 0x4, software_heat = 0x20, hardware_heat = 0x40,
                             hardware_power_brake = 0x80;

/// The library's functions; those that are not there are null.
struct Nvml {
  template <class Function>
  static Function* find(const NvmlLibrary& library, const char* name) {
    return reinterpret_cast<Function*>(::dlsym(library.get(), name));
  }
  explicit Nvml(const NvmlLibrary& l)
      : init(find<int()>(l, "nvmlInit_v2")),
        shutdown(find<int()>(l, "nvmlShutdown")),
        by_bus_id(find<int(const char*, NvmlDevice*)>(l, "nvmlDeviceGetHandleByPciBusId_v2")),
        clock(find<int(NvmlDevice, int, unsigned*)>(l, "nvmlDeviceGetClockInfo")),
        reasons(find<int(NvmlDevice, unsigned long long*)>(
            l, "nvmlDeviceGetCurrentClocksThrottleReasons")) {}
  bool whole() const { return init && shutdown && by_bus_id && clock && reasons; }

  int (*init)();
  int (*shutdown)();
  int (*by_bus_id)(const char*, NvmlDevice*);
  int (*clock)(NvmlDevice, int, unsigned*);
  int (*reasons)(NvmlDevice, unsigned long long*);
};

class NvmlGauge final : public GpuMonitor {
 public:
  NvmlGauge(NvmlLibrary library, const Nvml& nvml, NvmlDevice device)
      : library_(std::move(library)), nvml_(nvml), device_(device) {}
  ~NvmlGauge() override { nvml_.shutdown(); }

  std::optional<Reading> read() override {
    unsigned megahertz = 0;
    unsigned long long reasons = 0;
    if (nvml_.clock(device_, sm_clock, &megahertz) != success ||
        nvml_.reasons(device_, &reasons) != success)
      return std::nullopt;
    return Reading{1e6 * megahertz, (reasons & (software_heat | hardware_heat)) != 0,
                   (reasons & (software_power_cap | hardware_power_brake)) != 0};
  }

 private:
  const NvmlLibrary library_;
  const Nvml nvml_;
  const NvmlDevice device_;
};

}  // namespace

std::unique_ptr<GpuMonitor> make_gpu_monitor(const std::string& pci_bus_id) {
  NvmlLibrary library(::dlopen("libnvidia-ml.so.1", RTLD_LAZY));
  if (library.get() == nullptr) return nullptr;
  const Nvml nvml(library);
  if (!nvml.whole() || nvml.init() != success) return nullptr;
  NvmlDevice device = nullptr;
  if (nvml.by_bus_id(pci_bus_id.c_str(), &device) == success)
    return std::make_unique<NvmlGauge>(std::move(library), nvml, device);
  nvml.shutdown();
  return nullptr;
}

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
