#include "compute/cuda/engines/cudnn_runner.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "compute/cuda/kernels/device/lanes.hpp"
#include "compute/cuda/runtime/device.hpp"
#include "ringtrain/base/error.hpp"
#include "support/host_gpu/device.hpp"
#include "support/host_gpu/interpreter.hpp"

namespace ringtrain::compute::cuda {
namespace {

using host_gpu::Device;

struct Extent {
  const std::byte* data;
  std::size_t bytes;
  bool written;
  bool meets(const Extent& other) const {
    return data < other.data + other.bytes && other.data < data + bytes;
  }
};

// Every operand and the workspace, which is written.
std::vector<Extent> extents_of(const OperationGraph& graph, std::span<void* const> data,
                               const Extent& workspace) {
  const std::vector<bool> written = graph.written();
  std::vector<Extent> extents{workspace};
  for (std::size_t i = 0; i < data.size(); ++i)
    if (graph.values()[i].operand)
      extents.push_back({static_cast<const std::byte*>(data[i]),
                         host_gpu::bytes_of(graph.values()[i]), written[i]});
  return extents;
}

// What cuDNN forbids without looking.
void check_memory(Device& gpu, const std::string& engine, const std::vector<Extent>& extents) {
  for (const Extent& extent : extents) {
    if (extent.bytes == 0) continue;
    if (gpu.memory.place_of(extent.data, extent.bytes) != host_gpu::Place::device)
      gpu.complaints.push_back(engine + ": an operand is no device memory or past its end");
    if (reinterpret_cast<std::uintptr_t>(extent.data) % 16 != 0)
      gpu.complaints.push_back(engine + ": an operand is not aligned to 16 bytes");
    for (const Extent& other : extents)
      if (extent.written && &extent != &other && other.bytes > 0 && extent.meets(other))
        gpu.complaints.push_back(engine + ": what it writes overlaps another operand");
  }
}

using Fault = host_gpu::EngineFault;

// A BatchNorm is part of it.
bool is_fused(const OperationGraph& graph) {
  using Kind = OperationGraph::Kind;
  return std::ranges::any_of(graph.operations(), [](const OperationGraph::Operation& operation) {
    return operation.kind == Kind::statistics || operation.kind == Kind::batch_norm_sums ||
           operation.kind == Kind::multiply;
  });
}

// For whole programs: SIMULATED_GPU_FAULT is off, refused or capture (runtime_graphs.cpp).
Fault fault_of(const OperationGraph& graph, std::size_t place) {
  const Device& gpu = Device::get();
  if (gpu.engine_fault) return gpu.engine_fault(graph, place);
  const char* const asked = std::getenv("SIMULATED_GPU_FAULT");
  const std::string_view fault = asked == nullptr ? "" : asked;
  if (!is_fused(graph)) return Fault::none;
  return fault == "off" ? Fault::off : fault == "refused" ? Fault::refused : Fault::none;
}

std::size_t first_result(const OperationGraph& graph) {
  const std::vector<bool> written = graph.written();
  std::size_t i = 0;
  while (!written[i] || !graph.values()[i].operand) ++i;
  return i;
}

// Runs a graph whose engine has a fault that nobody is told of.
void run_wrong(const OperationGraph& graph, const std::vector<void*>& data, Fault fault) {
  const std::size_t at = first_result(graph);
  const OperationGraph::Value& value = graph.values()[at];
  auto* const result = static_cast<std::byte*>(data[at]);
  const std::size_t bytes = host_gpu::bytes_of(value);
  const std::vector<std::byte> before(result, result + bytes);
  host_gpu::interpret(graph, data);
  if (fault == Fault::silent) std::ranges::copy(before, result);
  if (fault == Fault::beside) std::memset(result + bytes, 0, 2);
  if (fault == Fault::off)
    kernels::with_type(value.element, [&]<class T>(T) {
      T* const numbers = reinterpret_cast<T*>(result);
      for (std::size_t i = 0; i < bytes / sizeof(T); i += 9)
        numbers[i] = static_cast<T>(1.1f * static_cast<float>(numbers[i]));
    });
}

std::uint64_t time_of(Device& gpu, const std::string& engine, std::size_t place) {
  return gpu.engine_time ? gpu.engine_time(engine, place) : 20 - std::min<std::size_t>(place, 20);
}

/// Runs the graphs that engines were chosen for.
class HostRunner final : public compute::cuda::CudnnRunner {
 public:
  explicit HostRunner(cudaStream_t stream) : stream_(stream) {}

  compute::cuda::PlanTarget target() const override {
    return compute::cuda::describe_device(compute::cuda::device_json("h100"));
  }
  bool compiles() const override { return false; }  // that needs the driver
  std::function<void()> bind(const compute::cuda::Engine& engine, const OperationGraph& graph,
                             std::span<void* const> data, void* workspace) override;

 private:
  cudaStream_t stream_;
};

std::function<void()> HostRunner::bind(const compute::cuda::Engine& engine,
                                       const OperationGraph& graph, std::span<void* const> data,
                                       void* workspace) {
  expects(data.size() == graph.values().size(), "CudnnRunner::bind: memory of each value");
  Device& gpu = Device::get();
  const Extent scratch{static_cast<const std::byte*>(workspace), engine.workspace, true};
  check_memory(gpu, engine.name, extents_of(graph, data, scratch));
  const auto run = [graph, workspace, bytes = engine.workspace,
                    pointers = std::vector(data.begin(), data.end())](Fault fault) {
    if (bytes > 0) std::memset(workspace, 0xff, bytes);
    if (fault == Fault::none)
      host_gpu::interpret(graph, pointers);
    else
      run_wrong(graph, pointers, fault);
  };
  return [stream = stream_, graph, run, name = engine.name, place = engine.place] {
    const Fault fault = fault_of(graph, place);
    if (fault == Fault::refused) throw Error("cudnnBackendExecute", "refused by the test");
    const cudaError_t code = host_gpu::call([&](Device& device) {
      const std::uint64_t us = time_of(device, name, place);
      const auto timed = [&device, run, us, fault, place] {
        device.observe("engine " + std::to_string(place));
        device.scheduler.take(us);
        run(fault);
      };
      return device.submit(stream, "cudnn engine", timed, &host_gpu::Counts::engines);
    });
    if (code != cudaSuccess) throw Error("cudnnBackendExecute", cudaGetErrorString(code));
  };
}

}  // namespace

std::unique_ptr<compute::cuda::CudnnRunner> make_cudnn_runner(cudaStream_t stream) {
  return std::make_unique<HostRunner>(stream);
}

}  // namespace ringtrain::compute::cuda
