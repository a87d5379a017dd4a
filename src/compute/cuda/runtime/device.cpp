#include "compute/cuda/runtime/device.hpp"

#include <dlfcn.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <memory>
#include <span>

#include "compute/cuda/runtime/runtime.hpp"
#include "ringtrain/base/error.hpp"
#include "ringtrain/compute/gpu_planner.hpp"

namespace ringtrain::compute::cuda {

namespace {

// What follows from the compute capability: CUDA C++ Programming Guide, "Technical Specifications
// per Compute Capability".
struct Generation {
  int capability, shared_memory, threads, blocks;  // shared memory of a block that asks; of an SM
};
constexpr std::array generations{
    Generation{75, 65536, 1024, 16},   Generation{80, 166912, 2048, 32},
    Generation{86, 101376, 1536, 16},  Generation{89, 101376, 1536, 24},
    Generation{90, 232448, 2048, 32},  Generation{100, 232448, 2048, 32},
    Generation{120, 101376, 1536, 24},
};

// Without a driver, cuDNN opens and closes its compiler for every plan; kept open, planning is many
// times faster. Where it is not found, only that is lost.
void keep_compiler_open() {
  for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12"})
    if (::dlopen(name, RTLD_LAZY | RTLD_NODELETE) != nullptr) return;
}

}  // namespace

Descriptor describe_device(std::string_view json) {
  keep_compiler_open();
  Descriptor device(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  device.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
             std::span<const char>(json.data(), json.size()));
  device.finalize();
  return device;
}

// The H100's and H200's are what cuDNN 9.19 says of one (test/data/*-device-properties.json).
// smCountOrigin, oversizedSharedMemoryPerBlock and memoryBusWidth are for cuDNN 9.28, older ones
// pass over them.
std::string device_json(const std::string& model) {
  const GpuModel& gpu = gpu_model(model);
  const auto found = std::ranges::find(generations, gpu.capability, &Generation::capability);
  expects(found != generations.end(), "device_json: a generation that we know");
  return fmt::format(
      R"({{"deviceVer":{}0,"driverVer":13000,"cudaDeviceId":0)"
      R"(,"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64])"
      R"(,"regsPerBlock":65536,"multiProcessorCount":{},"warpSize":32)"
      R"(,"maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":{})"
      R"(,"reservedSharedMemoryPerBlock":{},"maxRegistersPerSM":65536,"maxCtasPerSM":{})"
      R"(,"maxThreadsPerBlock":1024,"maxThreadsPerSM":{},"pciDeviceId":0)"
      R"(,"isTccDriver":0,"supportCoopLaunch":1,"smClockRateKHz":{})"
      R"(,"smCountOrigin":0,"oversizedSharedMemoryPerBlock":0,"memoryBusWidth":{})"
      R"(,"memClockRateKHz":{},"l2CacheSize":{:.0f},"totalGlobalMem":{:.0f})"
      R"(,"deviceName":"{}"}})",
      gpu.capability, gpu.multiprocessors, found->shared_memory, gpu.capability < 80 ? 0 : 1024,
      found->blocks, found->threads, gpu.sm_mhz * 1000, gpu.bus_bits, gpu.memory_mhz * 1000,
      gpu.l2_bytes, gpu.memory_bytes, gpu.title);
}

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

}  // namespace ringtrain::compute::cuda
