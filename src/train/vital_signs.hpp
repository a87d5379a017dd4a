#pragma once
#include <memory>
#include <mutex>
#include <utility>

#include "ringtrain/base/file_descriptor.hpp"
#include "ringtrain/train/stopwatch.hpp"
#include "train/driver_counters.hpp"
#include "train/gpu_gauge.hpp"
#include "train/vitals.hpp"

namespace ringtrain {

/// Looks at this process, its host and its GPU. For one thread, but for watch(); throws nothing:
/// what cannot be read stays 0.
class VitalSigns {
 public:
  VitalSigns();
  /// The GPU to look at from now on; null: none. From any thread.
  void watch(std::unique_ptr<GpuGauge> gpu) {
    const std::lock_guard lock(mutex_);
    gpu_ = std::move(gpu);
  }
  /// Up to now or, as looking costs some 0.1 ms, to half a second ago. `still_s`: for how long the
  /// process has stood still.
  const Vitals& look(double still_s);

 private:
  void look_at_host(double seconds);
  void look_at_process(double seconds);
  void look_at_gpu(double seconds);

  const FileDescriptor stat_, load_, memory_, interfaces_, protocols_, quota_;
  const DriverCounters allowance_{"_allowance_exceeded"};  // of Amazon's network cards
  std::mutex mutex_;                                       // of the next
  std::unique_ptr<GpuGauge> gpu_;
  Stopwatch since_last_;
  Vitals vitals_;
};

}  // namespace ringtrain
