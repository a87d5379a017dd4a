#include "support/host_gpu/device.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <thread>

#include "ringtrain/base/error.hpp"

namespace ringtrain::host_gpu {

// Never destroyed: threads may be left behind when the process ends.
Device& Device::get() {
  static Device* const device = [] {
    if (std::getenv("SIMULATED_GPU_TELLS") != nullptr) std::atexit(tell);
    return new Device;
  }();
  return *device;
}

void Device::tell() {
  for (const std::string& complaint : get().complaints)
    std::fprintf(stderr, "simulated GPU: %s\n", complaint.c_str());
}

cudaError_t Device::submit(cudaStream_t stream, const char* name, const Work& work,
                           std::size_t Counts::*count, std::vector<OperationPtr> after) {
  Attempt at_once;
  if (work)
    at_once = [work] {
      work();
      return true;
    };
  return attempt(stream, name, std::move(at_once), count, std::move(after));
}

// Streams and memory belong to one device, which is not that of every thread.
bool Device::is_chosen() {
  int chosen = 0;
  cudaGetDevice(&chosen);
  if (number < 0) number = chosen;
  if (number != chosen) complaints.push_back("work from a thread that has not chosen this GPU");
  return number == chosen;
}

cudaError_t Device::attempt(cudaStream_t handle, const char* name, Attempt work,
                            std::size_t Counts::*count, std::vector<OperationPtr> after) {
  if (!is_chosen()) return cudaErrorInvalidResourceHandle;
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
auto Device::run(F f) {
  struct Open {
    Memory& memory;
    explicit Open(Memory& all) : memory(all) { memory.open(true); }
    ~Open() { memory.open(false); }
  };
  const Open open(memory);
  return f();
}

// While work waits for others, other threads may come to it.
template <class F>
cudaError_t Device::wait_until(F is_done) {
  ++counts.host_waits;
  while (!run(is_done)) {
    mutex.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    mutex.lock();
  }
  return cudaSuccess;
}

cudaError_t Device::wait(const OperationPtr& target) {
  return wait_until([this, target] { return scheduler.run_until(target); });
}

cudaError_t Device::wait_all() {
  return wait_until([this] { return scheduler.run_all(); });
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

void set_observer(Observer observer) {
  Device& gpu = Device::get();
  const std::scoped_lock lock(gpu.mutex);
  gpu.observer = std::move(observer);
}

void take(std::uint64_t microseconds) {
  Device& gpu = Device::get();
  const std::scoped_lock lock(gpu.mutex);
  gpu.scheduler.take(microseconds);
}

void refuse_captures(bool refuse) {
  Device& gpu = Device::get();
  const std::scoped_lock lock(gpu.mutex);
  gpu.refuses_captures = refuse;
}

void set_memory(std::size_t bytes) {
  Device& gpu = Device::get();
  const std::scoped_lock lock(gpu.mutex);
  gpu.total_bytes = bytes;
}

void set_engine_time(EngineTime time) {
  Device& gpu = Device::get();
  const std::scoped_lock lock(gpu.mutex);
  gpu.engine_time = std::move(time);
}

bool attempt(CUstream_st* stream, const char* name, std::function<bool()> work) {
  const cudaError_t code =
      call([&](Device& gpu) { return gpu.attempt(stream, name, std::move(work)); });
  return code == cudaSuccess;
}

void go_on() {
  Device& gpu = Device::get();
  if (const std::unique_lock lock(gpu.mutex, std::try_to_lock); lock && gpu.scheduler.pending())
    gpu.glance();
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
