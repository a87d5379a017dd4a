#include <cstring>

#include "support/host_gpu/device.hpp"

using namespace ringtrain::host_gpu;

namespace {

cudaError_t allocate(void** data, std::size_t bytes, Place place) {
  return call([&](Device& gpu) {
    if (const cudaError_t refused = gpu.refuse_in_capture(); refused != cudaSuccess) return refused;
    if (place == Place::device && gpu.memory.device_bytes() + bytes > gpu.total_bytes)
      return cudaErrorMemoryAllocation;
    *data = bytes == 0 ? nullptr : gpu.memory.allocate(bytes, place);
    if (place == Place::device) ++gpu.counts.allocations;
    return cudaSuccess;
  });
}

cudaError_t release(void* data, Place place, const char* name) {
  return call([&](Device& gpu) {
    if (!data) return cudaSuccess;
    if (const cudaError_t refused = gpu.refuse_in_capture(); refused != cudaSuccess) return refused;
    gpu.expect_idle(name);
    return gpu.memory.release(data, place) ? cudaSuccess : cudaErrorInvalidValue;
  });
}

struct Copy {
  void* to;
  const void* from;
  std::size_t bytes;
  cudaMemcpyKind kind;
  void run() const { std::memmove(to, from, bytes); }
};

bool on_device(cudaMemcpyKind kind, cudaMemcpyKind other) {
  return kind == cudaMemcpyDeviceToDevice || kind == other;
}

cudaError_t complain(Device& gpu, const Copy& copy, const char* what, cudaError_t code) {
  gpu.complaints.push_back("copy of " + std::to_string(copy.bytes) + " bytes " + what);
  return code;
}

// One end of a copy: whether it lies where the copy's kind says.
cudaError_t check_end(Device& gpu, const Copy& copy, bool is_source, bool asynchronous) {
  const Place place = gpu.memory.place_of(is_source ? copy.from : copy.to, copy.bytes);
  if (copy.kind != cudaMemcpyDefault) {
    const bool device =
        on_device(copy.kind, is_source ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice);
    if (device != (place == Place::device))
      return complain(gpu, copy,
                      is_source ? "from memory on the other side, or past its end"
                                : "to memory on the other side, or past its end",
                      cudaErrorInvalidValue);
  }
  if (place == Place::pageable && asynchronous)
    return complain(gpu, copy, is_source ? "from pageable memory" : "to pageable memory",
                    cudaSuccess);
  return cudaSuccess;
}

cudaError_t submit(Device& gpu, const Copy& copy, bool asynchronous, cudaStream_t stream) {
  for (const bool is_source : {true, false})
    if (const cudaError_t code = check_end(gpu, copy, is_source, asynchronous); code != cudaSuccess)
      return code;
  const auto work = [copy, &gpu] {
    gpu.observe("copy " + std::to_string(copy.bytes));
    copy.run();
  };
  return gpu.submit(stream, "copy", work, &Counts::copies);
}

cudaError_t submit_fill(Device& gpu, void* data, int value, std::size_t bytes,
                        cudaStream_t stream) {
  if (gpu.memory.place_of(data, bytes) != Place::device)
    return complain(gpu, {data, data, bytes, cudaMemcpyDefault}, "(a fill) outside of the device",
                    cudaErrorInvalidValue);
  return gpu.submit(stream, "fill", [=, &gpu] {
    gpu.observe("fill " + std::to_string(bytes));
    std::memset(data, value, bytes);
  });
}

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  return allocate(data, bytes, Place::device);
}

cudaError_t cudaFree(void* data) { return release(data, Place::device, "cudaFree"); }

cudaError_t cudaMallocHost(void** data, std::size_t bytes) {
  return allocate(data, bytes, Place::pinned);
}

cudaError_t cudaHostAlloc(void** data, std::size_t bytes, unsigned) {
  return allocate(data, bytes, Place::pinned);
}

cudaError_t cudaFreeHost(void* data) { return release(data, Place::pinned, "cudaFreeHost"); }

cudaError_t cudaHostRegister(void* data, std::size_t bytes, unsigned) {
  return call([&](Device& gpu) {
    if (gpu.memory.place_of(data, 1) != Place::pageable)
      return cudaErrorHostMemoryAlreadyRegistered;
    gpu.memory.add_pinned(data, bytes);
    ++gpu.counts.pins;
    return cudaSuccess;
  });
}

cudaError_t cudaHostUnregister(void* data) {
  const cudaError_t code = release(data, Place::pinned, "cudaHostUnregister");
  return code == cudaErrorInvalidValue ? cudaErrorHostMemoryNotRegistered : code;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return call([&](Device& gpu) { return submit(gpu, {to, from, bytes, kind}, true, stream); });
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  return call([&](Device& gpu) {
    const cudaError_t code = submit(gpu, {to, from, bytes, kind}, false, nullptr);
    return code != cudaSuccess ? code : gpu.wait(gpu.scheduler.stream(nullptr).last);
  });
}

cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t stream) {
  return call([&](Device& gpu) { return submit_fill(gpu, data, value, bytes, stream); });
}

cudaError_t cudaMemset(void* data, int value, std::size_t bytes) {
  return cudaMemsetAsync(data, value, bytes, nullptr);
}

}  // extern "C"
