#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "compute/cuda/runtime/cudnn.hpp"
#include "ringtrain/base/memory/memory.hpp"

namespace ringtrain::compute::cuda {

/// The GPU that cuDNN plans for: one that is only described, whose plans cannot run, or that of a
/// handle, which outlives the plans.
struct PlanTarget {
  PlanTarget(Descriptor described) : device(std::move(described)) {}
  explicit PlanTarget(cudnnHandle_t real) : handle(real) {}
  std::optional<Descriptor> device;
  cudnnHandle_t handle = nullptr;
};

/// A GPU as cuDNN's heuristics and plans need to know it, from cuDNN's own JSON.
Descriptor describe_device(std::string_view json);

/// The built-in description of a GpuModel.
std::string device_json(const std::string& model);

/// Memory of this thread's GPU. Nothing may be queued that uses a buffer when it is released.
class DeviceMemory final : public Memory {
 public:
  Buffer allocate(std::size_t count) override;
  void read(View from, std::span<float> to) const override;
  void write(std::span<const float> from, View to) const override;
};

}  // namespace ringtrain::compute::cuda
