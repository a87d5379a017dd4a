#include "support/host_gpu/device.hpp"

#include <exception>

#include "ringtrain/base/error.hpp"

namespace ringtrain::host_gpu {

Device& Device::get() {
  static Device device;
  return device;
}

cudaError_t Device::submit(cudaStream_t handle, const char* name, Work work,
                           std::size_t Counts::*count, std::vector<OperationPtr> after) {
  Stream& stream = scheduler.stream(handle);
  if (stream.capture) return stream.capture->add(stream, name, std::move(work));
  if (&stream == &scheduler.stream(nullptr) && !captures.empty()) {
    for (const auto& capture : captures) capture->valid = false;
    return cudaErrorStreamCaptureImplicit;
  }
  if (count) ++(counts.*count);
  scheduler.queue(stream, name, std::move(work), std::move(after));
  return cudaSuccess;
}

// Device memory is open only while the device works.
template <class F>
void Device::run(F f) {
  struct Open {
    Memory& memory;
    explicit Open(Memory& all) : memory(all) { memory.open(true); }
    ~Open() { memory.open(false); }
  };
  const Open open(memory);
  f();
}

cudaError_t Device::wait(const OperationPtr& target) {
  ++counts.host_waits;
  run([&] { scheduler.run_until(target); });
  return cudaSuccess;
}

cudaError_t Device::wait_all() {
  ++counts.host_waits;
  run([&] { scheduler.run_all(); });
  return cudaSuccess;
}

void Device::glance() {
  run([&] { scheduler.run_some(); });
}

cudaError_t Device::refuse_in_capture(cudaError_t code) {
  bool refused = false;
  for (const auto& capture : captures) {
    if (capture->mode == cudaStreamCaptureModeRelaxed) continue;
    capture->valid = false;
    refused = true;
  }
  return refused ? code : cudaSuccess;
}

void Device::expect_idle(const char* call) {
  const char* const pending = scheduler.pending();
  if (!pending) return;
  const std::string reason = std::string("work is queued that may use it, such as ") + pending;
  complaints.push_back(std::string(call) + ": " + reason);
  if (std::uncaught_exceptions() == 0) throw Error(call, reason);
  scheduler.drop_pending();
}

void set_seed(std::uint64_t seed) {
  Device& gpu = Device::get();
  const std::scoped_lock lock(gpu.mutex);
  gpu.scheduler.set_seed(seed);
  gpu.counts = {};
  gpu.complaints.clear();
}

void set_engine_fault(EngineFaultOf fault) {
  Device& gpu = Device::get();
  const std::scoped_lock lock(gpu.mutex);
  gpu.engine_fault = std::move(fault);
}

void set_engine_time(EngineTime time) {
  Device& gpu = Device::get();
  const std::scoped_lock lock(gpu.mutex);
  gpu.engine_time = std::move(time);
}

Counts counts() {
  Device& gpu = Device::get();
  const std::scoped_lock lock(gpu.mutex);
  Counts counts = gpu.counts;
  counts.live_bytes = gpu.memory.device_bytes();
  return counts;
}

std::vector<std::string> complaints() {
  Device& gpu = Device::get();
  const std::scoped_lock lock(gpu.mutex);
  return gpu.complaints;
}

}  // namespace ringtrain::host_gpu
