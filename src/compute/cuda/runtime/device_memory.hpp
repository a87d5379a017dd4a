#pragma once
#include "ringtrain/compute/memory.hpp"

namespace ringtrain::cuda {

/// Memory of this thread's GPU. Nothing may be queued that uses a buffer when it is released.
class DeviceMemory final : public Memory {
 public:
  Buffer allocate(std::size_t count) override;
  void read(View from, std::span<float> to) const override;
  void write(std::span<const float> from, View to) const override;
};

}  // namespace ringtrain::cuda
