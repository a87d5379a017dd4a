#pragma once
#include <map>
#include <string>
#include <vector>

#include "compute/cuda/cudnn_runner.hpp"
#include "compute/cuda/engine.hpp"
#include "compute/cuda/runtime.hpp"
#include "ringtrain/compute/gpu.hpp"
#include "ringtrain/compute/step.hpp"

namespace ringtrain::cuda {

/// Runs fused steps before training, beside the same steps in parts, on random numbers. cuDNN makes
/// plans that end without an error and with wrong results: docs/gpu.md lists those that were seen.
class FusionCheck {
 public:
  /// All outlive this object.
  FusionCheck(Element element, Engines& engines, CudnnRunner& runner, cudaStream_t stream)
      : element_(element), engines_(engines), runner_(runner), stream_(stream) {}

  /// What is wrong with the engines of `schedule`'s fused steps: each request is checked once, at
  /// the sizes that it will have. Takes memory for a few tensors and gives it back. Waits. Throws
  /// Error where the GPU can do nothing more.
  std::vector<GpuRefusal> check(const Schedule& schedule);

  /// What is wrong with another engine for a request that check() has seen; empty: nothing. Of
  /// requests that are not fused nothing is known.
  std::string fault(const RequestKey& request, const Engine& engine) const;

  std::size_t checked() const { return cases_.size(); }

 private:
  // A step and what its request is made of.
  struct Case {
    Schedule shapes;  // without steps
    Step step;
  };

  std::string fault(const Case& one, const Engine& engine) const;

  const Element element_;
  Engines& engines_;
  CudnnRunner& runner_;
  const cudaStream_t stream_;
  DeviceBytes noise_;  // of which inputs are made
  std::map<RequestKey, Case> cases_;
};

}  // namespace ringtrain::cuda
