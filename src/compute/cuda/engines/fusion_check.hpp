#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compute/cuda/engines/cudnn_runner.hpp"
#include "compute/cuda/engines/engine.hpp"
#include "compute/cuda/engines/fusion_operands.hpp"
#include "compute/cuda/runtime/runtime.hpp"
#include "ringtrain/compute/gpu.hpp"
#include "ringtrain/compute/step.hpp"

namespace ringtrain::compute::cuda {

/// Runs fused steps before training, beside the same steps in parts, on random numbers. cuDNN makes
/// plans that end without an error and with wrong results: docs/internals/gpu.md lists those that
/// were seen.
class FusionCheck {
 public:
  /// All outlive this object.
  FusionCheck(Element element, Engines& engines, CudnnRunner& runner, cudaStream_t stream)
      : element_(element),
        engines_(engines),
        parts_(runner.target()),
        runner_(runner),
        stream_(stream) {}

  /// What is wrong with the engines of `schedule`'s fused steps, each request checked once, at the
  /// sizes that it will have. Where another of cuDNN's proposals is right, `engines` answers with
  /// that from now on. Takes memory for a few tensors and gives it back. Waits. Throws Error where
  /// there is too little memory, and where the GPU can do nothing more.
  std::vector<GpuRefusal> check(const Schedule& schedule);

  /// What is wrong with another engine for a request that check() has seen; empty: nothing. Of
  /// requests that are not fused nothing is known. Throws as check() does.
  std::string fault(const RequestKey& request, const Engine& engine);

  /// What inputs are made of here, and may be elsewhere. Made when it is first asked for, in the
  /// element that training computes in. Throws Error where there is too little memory.
  const Noise& noise();

  std::size_t checked() const { return cases_.size(); }
  double seconds() const { return seconds_; }

 private:
  // A step and what its request is made of.
  struct Case {
    Schedule shapes;  // without steps
    Step step;
  };

  std::string fault(const Case& one, const Engine& engine);
  std::optional<Engine> right_one(const Case& one, const OperationGraph& graph,
                                  std::size_t wrong_place);

  const Element element_;
  Engines& engines_;
  Engines parts_;  // of its own: what training asks cuDNN stays what its schedule asks
  CudnnRunner& runner_;
  const cudaStream_t stream_;
  Noise noise_;
  std::map<RequestKey, Case> cases_;
  double seconds_ = 0;
};

}  // namespace ringtrain::compute::cuda
