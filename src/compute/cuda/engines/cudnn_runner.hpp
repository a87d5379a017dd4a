#pragma once
#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <span>

#include "compute/cuda/engines/engine.hpp"
#include "compute/cuda/engines/operation_graph.hpp"

namespace ringtrain::compute::cuda {

/// Runs cuDNN's engines on one stream.
class CudnnRunner {
 public:
  virtual ~CudnnRunner() = default;
  /// This GPU, to plan for. Plans die before this object.
  virtual PlanTarget target() const = 0;
  /// Whether engines that are compiled at run time can run here.
  virtual bool compiles() const = 0;
  /// What queues one run of `engine`, which was chosen for `graph`: `data` is the device memory of
  /// each of graph.values(), null for those without operand. `engine`, memory and this object
  /// outlive the result, whose calls throw Error when cuDNN refuses.
  virtual std::function<void()> bind(const Engine& engine, const OperationGraph& graph,
                                     std::span<void* const> data, void* workspace) = 0;
};

/// Throws Error in cuDNN's words where the GPU cannot be used.
std::unique_ptr<CudnnRunner> make_cudnn_runner(cudaStream_t stream);

}  // namespace ringtrain::compute::cuda
