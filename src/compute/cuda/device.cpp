#include "compute/cuda/device.hpp"

#include <dlfcn.h>

#include "ringtrain/base/error.hpp"

namespace ringtrain::cuda {
namespace {

// The H100's is what cuDNN 9.19 says of one (test/data/h100-device-properties.json), the H200's is
// written by hand from its data sheet. The line of smCountOrigin is for cuDNN 9.28, older ones pass
// over it.
constexpr std::string_view h100 =
    R"({"deviceVer":900,"driverVer":13000,"cudaDeviceId":0)"
    R"(,"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64])"
    R"(,"regsPerBlock":65536,"multiProcessorCount":132,"warpSize":32)"
    R"(,"maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":232448)"
    R"(,"reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"maxCtasPerSM":32)"
    R"(,"maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"pciDeviceId":0)"
    R"(,"isTccDriver":0,"supportCoopLaunch":1,"smClockRateKHz":1980000)"
    R"(,"smCountOrigin":0,"oversizedSharedMemoryPerBlock":0,"memoryBusWidth":5120)"
    R"(,"memClockRateKHz":2619000,"l2CacheSize":52428800,"totalGlobalMem":85017493504)"
    R"(,"deviceName":"NVIDIA H100 80GB HBM3"})";
constexpr std::string_view h200 =
    R"({"deviceVer":900,"driverVer":13000,"cudaDeviceId":0)"
    R"(,"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64])"
    R"(,"regsPerBlock":65536,"multiProcessorCount":132,"warpSize":32)"
    R"(,"maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":232448)"
    R"(,"reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"maxCtasPerSM":32)"
    R"(,"maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"pciDeviceId":0)"
    R"(,"isTccDriver":0,"supportCoopLaunch":1,"smClockRateKHz":1980000)"
    R"(,"smCountOrigin":0,"oversizedSharedMemoryPerBlock":0,"memoryBusWidth":6144)"
    R"(,"memClockRateKHz":3201000,"l2CacheSize":62914560,"totalGlobalMem":150754820096)"
    R"(,"deviceName":"NVIDIA H200"})";

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

std::string_view device_json(std::string_view model) {
  if (model == "h100") return h100;
  if (model == "h200") return h200;
  throw Error(std::string("describe ") + std::string(model), "no description is built in");
}

}  // namespace ringtrain::cuda
