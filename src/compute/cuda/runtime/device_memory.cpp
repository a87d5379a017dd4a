#include "compute/cuda/runtime/device_memory.hpp"

#include <memory>

#include "compute/cuda/runtime/runtime.hpp"
#include "ringtrain/base/error.hpp"

namespace ringtrain::cuda {

Buffer DeviceMemory::allocate(std::size_t count) {
  // Shared, because what releases a Buffer is a std::function, which is copied.
  const auto bytes = std::make_shared<DeviceBytes>(count * sizeof(float));
  if (count > 0) {
    check(cudaMemset(bytes->data(), 0, bytes->size()), "cudaMemset");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
  return {{reinterpret_cast<float*>(bytes->data()), count}, [bytes](float*) {}};
}

void DeviceMemory::read(View from, std::span<float> to) const {
  expects(from.size() == to.size(), "Memory::read: as many numbers");
  read_and_wait(to.data(), from.data(), to.size_bytes());
}

void DeviceMemory::write(std::span<const float> from, View to) const {
  expects(from.size() == to.size(), "Memory::write: as many numbers");
  write_and_wait(to.data(), from.data(), from.size_bytes());
}

}  // namespace ringtrain::cuda
