#include "compute/cuda/device_memory.hpp"

#include "compute/cuda/runtime.hpp"
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
  if (to.empty()) return;
  check(cudaMemcpy(to.data(), from.data(), to.size_bytes(), cudaMemcpyDeviceToHost), "cudaMemcpy");
}

void DeviceMemory::write(std::span<const float> from, View to) const {
  expects(from.size() == to.size(), "Memory::write: as many numbers");
  if (from.empty()) return;
  check(cudaMemcpy(to.data(), from.data(), from.size_bytes(), cudaMemcpyHostToDevice),
        "cudaMemcpy");
  // From pageable memory it may still be under way.
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

}  // namespace ringtrain::cuda
