#pragma once
#include <map>

#include "compute/cuda/runtime/runtime.hpp"
#include "ringtrain/compute/gpu.hpp"

namespace ringtrain::compute::cuda {

/// First a copy within the GPU, which costs the compute stream microseconds; from there to the host
/// on a stream of its own, while training changes the original.
class CudaSnapshot final : public GpuSnapshot {
 public:
  CudaSnapshot(const std::vector<View>& state, cudaStream_t compute);
  ~CudaSnapshot() override;

  void pin(std::span<const std::span<float>> targets) override;
  void start(std::span<const std::span<float>> targets) override;
  bool done() override;
  void release() override;

 private:
  void pin_one(std::span<float> target);

  const std::vector<View> state_;
  const cudaStream_t compute_;
  const Stream copies_;
  const Event taken_, copied_;
  const DeviceBytes copy_;
  std::map<float*, std::size_t> pinned_;
};

}  // namespace ringtrain::compute::cuda
