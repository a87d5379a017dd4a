#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "compute/cuda/kernels/architectures.hpp"
#include "support/host_gpu/device.hpp"

using namespace ringtrain::host_gpu;

namespace {

constexpr std::array<std::pair<cudaError_t, std::array<const char*, 2>>, 21> errors{{
    {cudaSuccess, {"cudaSuccess", "no error"}},
    {cudaErrorInvalidValue, {"cudaErrorInvalidValue", "invalid argument"}},
    {cudaErrorInvalidDevice, {"cudaErrorInvalidDevice", "invalid device ordinal"}},
    {cudaErrorInvalidResourceHandle, {"cudaErrorInvalidResourceHandle", "invalid handle"}},
    {cudaErrorIllegalState, {"cudaErrorIllegalState", "not in the state for this"}},
    {cudaErrorNotReady, {"cudaErrorNotReady", "device not ready"}},
    {cudaErrorHostMemoryAlreadyRegistered,
     {"cudaErrorHostMemoryAlreadyRegistered", "memory is page-locked already"}},
    {cudaErrorHostMemoryNotRegistered,
     {"cudaErrorHostMemoryNotRegistered", "memory has not been page-locked"}},
    {cudaErrorStreamCaptureUnsupported,
     {"cudaErrorStreamCaptureUnsupported", "not permitted when a stream is capturing"}},
    {cudaErrorStreamCaptureInvalidated,
     {"cudaErrorStreamCaptureInvalidated", "failed due to an error in a capture before"}},
    {cudaErrorStreamCaptureMerge,
     {"cudaErrorStreamCaptureMerge", "would merge two independent captures"}},
    {cudaErrorStreamCaptureUnmatched,
     {"cudaErrorStreamCaptureUnmatched", "the capture did not begin in this stream"}},
    {cudaErrorStreamCaptureUnjoined,
     {"cudaErrorStreamCaptureUnjoined", "a forked stream has not been joined back"}},
    {cudaErrorStreamCaptureIsolation,
     {"cudaErrorStreamCaptureIsolation", "dependency on uncaptured work in another stream"}},
    {cudaErrorStreamCaptureImplicit,
     {"cudaErrorStreamCaptureImplicit", "would make the default stream depend on a capture"}},
    {cudaErrorStreamCaptureWrongThread,
     {"cudaErrorStreamCaptureWrongThread", "captured from another thread"}},
    {cudaErrorCapturedEvent, {"cudaErrorCapturedEvent", "event last recorded in a capture"}},
    {cudaErrorMemoryAllocation, {"cudaErrorMemoryAllocation", "out of memory"}},
    {cudaErrorInsufficientDriver,
     {"cudaErrorInsufficientDriver", "driver is older than this CUDA, or there is none"}},
    {cudaErrorNoDevice, {"cudaErrorNoDevice", "no CUDA-capable device is detected"}},
    {cudaErrorNotSupported, {"cudaErrorNotSupported", "operation not supported"}},
}};

const char* text_of(cudaError_t code, std::size_t which) {
  for (const auto& [known, texts] : errors)
    if (known == code) return texts[which];
  return "an error that host_gpu does not know";
}

// What tests set to have another GPU or driver than a good one.
int setting(const char* name, int otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::atoi(value);
}

// Of the calling thread. All devices are this one's equals; a process uses one of them.
thread_local int current_device = 0;

bool exists(int device) {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && device >= 0 && device < count;
}

int capability() { return setting("SIMULATED_GPU_CAPABILITY", 90); }

cudaError_t attribute(cudaDeviceAttr name, int& value) {
  switch (name) {
    case cudaDevAttrComputeCapabilityMajor:
      return value = capability() / 10, cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      return value = capability() % 10, cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
      return value = 132, cudaSuccess;
    case cudaDevAttrL2CacheSize:  // small: what fills it is really written
      return value = 1 << 20, cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      return value = 232448, cudaSuccess;
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace

const char* ringtrain::compute::cuda::kernels::kernel_architectures() {
  const char* named = std::getenv("SIMULATED_GPU_KERNELS");
  return named == nullptr ? "" : named;
}

extern "C" {

const char* cudaGetErrorName(cudaError_t code) { return text_of(code, 0); }
const char* cudaGetErrorString(cudaError_t code) { return text_of(code, 1); }

cudaError_t cudaGetLastError() {
  Device& gpu = Device::get();
  const std::scoped_lock lock(gpu.mutex);
  return std::exchange(gpu.last_error, cudaSuccess);
}

cudaError_t cudaPeekAtLastError() {
  return call([](Device& gpu) { return gpu.last_error; });
}

cudaError_t cudaRuntimeGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }

cudaError_t cudaDriverGetVersion(int* version) {
  *version = setting("SIMULATED_GPU_DRIVER", CUDART_VERSION);
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  int driver = 0;
  cudaDriverGetVersion(&driver);
  *count = 0;
  if (driver / 1000 < CUDART_VERSION / 1000) return cudaErrorInsufficientDriver;
  *count = setting("SIMULATED_GPUS", 1);
  return *count == 0 ? cudaErrorNoDevice : cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) { return *device = current_device, cudaSuccess; }

cudaError_t cudaSetDevice(int device) {
  return call([&](Device&) {
    if (!exists(device)) return cudaErrorInvalidDevice;
    current_device = device;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int bytes, int device) {
  return call([&](Device&) {
    char text[] = "0000:01:00.0";
    if (!exists(device)) return cudaErrorInvalidDevice;
    if (bytes < static_cast<int>(sizeof(text))) return cudaErrorInvalidValue;
    std::snprintf(text, sizeof(text), "0000:%02x:00.0", (device + 1) % 256u);
    std::memcpy(id, text, sizeof(text));
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return call([&](Device&) {
    if (!exists(device)) return cudaErrorInvalidDevice;
    *properties = {};
    constexpr char name[] = "simulated H100";
    std::memcpy(properties->name, name, sizeof(name));
    properties->totalGlobalMem = Device::get().total_bytes;
    properties->major = 9;
    properties->multiProcessorCount = 132;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr name, int device) {
  return call(
      [&](Device&) { return exists(device) ? attribute(name, *value) : cudaErrorInvalidDevice; });
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  return call([&](Device& gpu) {
    *total = gpu.total_bytes;
    *free = gpu.total_bytes - gpu.memory.device_bytes();
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceSynchronize() {
  return call([](Device& gpu) {
    const cudaError_t refused = gpu.refuse_in_capture();
    return refused != cudaSuccess ? refused : gpu.wait_all();
  });
}

}  // extern "C"
