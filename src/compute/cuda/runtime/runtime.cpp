#include "compute/cuda/runtime/runtime.hpp"

#include <fmt/core.h>

#include <string>
#include <utility>

#include "ringtrain/base/error.hpp"

namespace ringtrain::compute::cuda {
namespace {

using Recording = UniqueHandle<cudaGraph_t, cudaGraphDestroy>;

std::string sized(const char* what, std::size_t bytes) {
  return fmt::format("{} of {:.1f} MiB", what, double(bytes) / (1 << 20));
}

}  // namespace

void check(cudaError_t code, std::string_view call, std::source_location at) {
  if (code == cudaSuccess) return;
  throw Error(call, fmt::format("{}, {}", cudaGetErrorName(code), cudaGetErrorString(code)), at);
}

Stream make_stream() {
  cudaStream_t raw = nullptr;
  check(cudaStreamCreateWithFlags(&raw, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  return Stream(raw);
}

Event make_event() {
  cudaEvent_t raw = nullptr;
  check(cudaEventCreateWithFlags(&raw, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  return Event(raw);
}

Event make_timed_event() {
  cudaEvent_t raw = nullptr;
  check(cudaEventCreateWithFlags(&raw, cudaEventDefault), "cudaEventCreateWithFlags");
  return Event(raw);
}

double microseconds(const Event& from, const Event& to) {
  float ms = 0;
  check(cudaEventElapsedTime(&ms, from.get(), to.get()), "cudaEventElapsedTime");
  return 1000. * ms;
}

void follow(cudaStream_t later, const Event& through, cudaStream_t earlier) {
  check(cudaEventRecord(through.get(), earlier), "cudaEventRecord");
  check(cudaStreamWaitEvent(later, through.get(), 0), "cudaStreamWaitEvent");
}

bool is_done(const Event& event) {
  const cudaError_t code = cudaEventQuery(event.get());
  if (code != cudaErrorNotReady) check(code, "work on the GPU");
  // That is no error, but CUDA would answer the next launch with it.
  if (code == cudaErrorNotReady) static_cast<void>(cudaGetLastError());
  return code == cudaSuccess;
}

DeviceBytes::DeviceBytes(std::size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  void* raw = nullptr;
  const cudaError_t code = cudaMalloc(&raw, bytes);
  if (code == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());  // else the next launch would answer with it
    throw Error(Exit::usage, sized("GPU memory", bytes),
                "there is not enough left; a smaller --batch needs less");
  }
  check(code, sized("GPU memory", bytes));
  data_ = UniqueHandle<void*, cudaFree>(raw);
}

std::shared_ptr<const DeviceBytes> SharedBytes::hold(std::size_t bytes) {
  std::shared_ptr<const DeviceBytes> held = held_.lock();
  if (held && held->size() >= bytes) return held;
  held = std::make_shared<const DeviceBytes>(bytes);
  held_ = held;
  return held;
}

PinnedBytes::PinnedBytes(std::size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  void* raw = nullptr;
  check(cudaHostAlloc(&raw, bytes, cudaHostAllocDefault), sized("pinned memory", bytes));
  data_ = UniqueHandle<void*, cudaFreeHost>(raw);
}

void write_and_wait(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  check(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

void read_and_wait(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  check(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
}

// Thread local: NCCL's own thread makes calls that would end a global capture.
Capture::Capture(cudaStream_t stream) : stream_(stream) {
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
}

Capture::~Capture() {
  if (stream_ == nullptr) return;
  cudaGraph_t raw = nullptr;
  static_cast<void>(cudaStreamEndCapture(stream_, &raw));
  const Recording broken(raw);
}

Graph Capture::finish() {
  cudaGraph_t raw = nullptr;
  check(cudaStreamEndCapture(std::exchange(stream_, nullptr), &raw), "cudaStreamEndCapture");
  const Recording recording(raw);
  cudaGraphExec_t graph = nullptr;
  check(cudaGraphInstantiate(&graph, recording.get(), 0), "cudaGraphInstantiate");
  return Graph(graph);
}

Graph capture(cudaStream_t stream, const std::function<void()>& queue) {
  Capture recorded(stream);
  queue();
  return recorded.finish();
}

}  // namespace ringtrain::compute::cuda
