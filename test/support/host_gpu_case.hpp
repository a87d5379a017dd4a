#pragma once
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <span>

#include "ringtrain/base/unique_handle.hpp"
#include "support/catch.hpp"

namespace ringtrain {

// What tests need of CUDA, with every call checked.

class GpuEvent {
 public:
  GpuEvent() {
    cudaEvent_t raw = nullptr;
    REQUIRE(cudaEventCreateWithFlags(&raw, cudaEventDisableTiming) == cudaSuccess);
    handle_ = Handle(raw);
  }
  operator cudaEvent_t() const { return handle_.get(); }
  void record(cudaStream_t stream) { REQUIRE(cudaEventRecord(*this, stream) == cudaSuccess); }

 private:
  using Handle = UniqueHandle<cudaEvent_t, cudaEventDestroy>;
  Handle handle_;
};

class GpuStream {
 public:
  explicit GpuStream(unsigned flags = cudaStreamNonBlocking) {
    cudaStream_t raw = nullptr;
    REQUIRE(cudaStreamCreateWithFlags(&raw, flags) == cudaSuccess);
    handle_ = Handle(raw);
  }
  operator cudaStream_t() const { return handle_.get(); }
  void wait(const GpuEvent& event) { REQUIRE(cudaStreamWaitEvent(*this, event, 0) == cudaSuccess); }

 private:
  using Handle = UniqueHandle<cudaStream_t, cudaStreamDestroy>;
  Handle handle_;
};

/// fp32 in host memory that the GPU copies.
class PinnedValues {
 public:
  PinnedValues(std::size_t count, float value) : count_(count) {
    void* raw = nullptr;
    REQUIRE(cudaHostAlloc(&raw, count * sizeof(float), cudaHostAllocDefault) == cudaSuccess);
    handle_ = Handle(raw);
    fill(value);
  }
  float* data() const { return static_cast<float*>(handle_.get()); }
  std::size_t bytes() const { return count_ * sizeof(float); }
  float operator[](std::size_t i) const { return data()[i]; }
  void fill(float value) { std::fill_n(data(), count_, value); }

 private:
  using Handle = UniqueHandle<void*, cudaFreeHost>;
  std::size_t count_;
  Handle handle_;
};

/// fp32 on the device. Whoever queues work on it also waits for that work.
class GpuValues {
 public:
  explicit GpuValues(std::size_t count) : count_(count) {
    void* raw = nullptr;
    REQUIRE(cudaMalloc(&raw, bytes()) == cudaSuccess);
    handle_ = Handle(raw);
  }
  float* data() const { return static_cast<float*>(handle_.get()); }
  std::size_t bytes() const { return count_ * sizeof(float); }
  void write(const PinnedValues& from, cudaStream_t stream) {
    REQUIRE(cudaMemcpyAsync(data(), from.data(), bytes(), cudaMemcpyHostToDevice, stream) ==
            cudaSuccess);
  }
  void copy(const GpuValues& from, cudaStream_t stream) {
    REQUIRE(cudaMemcpyAsync(data(), from.data(), bytes(), cudaMemcpyDeviceToDevice, stream) ==
            cudaSuccess);
  }
  /// The first number once `stream`'s work is done.
  float read(cudaStream_t stream) const {
    PinnedValues first(1, 0);
    REQUIRE(cudaMemcpyAsync(first.data(), data(), sizeof(float), cudaMemcpyDeviceToHost, stream) ==
            cudaSuccess);
    REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
    return first[0];
  }
  /// The first number once all work is done.
  float read() const {
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    return read(nullptr);
  }

 private:
  using Handle = UniqueHandle<void*, cudaFree>;
  std::size_t count_;
  Handle handle_;
};

class GpuGraph {
 public:
  /// Takes over `graph`.
  explicit GpuGraph(cudaGraph_t graph) : graph_(graph) {
    cudaGraphExec_t raw = nullptr;
    REQUIRE(cudaGraphInstantiate(&raw, graph, 0) == cudaSuccess);
    executable_ = Executable(raw);
  }
  void launch(cudaStream_t stream) {
    REQUIRE(cudaGraphLaunch(executable_.get(), stream) == cudaSuccess);
  }

 private:
  using Graph = UniqueHandle<cudaGraph_t, cudaGraphDestroy>;
  using Executable = UniqueHandle<cudaGraphExec_t, cudaGraphExecDestroy>;
  Graph graph_;
  Executable executable_;
};

}  // namespace ringtrain
