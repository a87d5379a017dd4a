#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "compute/cuda/engines/cudnn_runner.hpp"
#include "compute/cuda/engines/engine.hpp"
#include "compute/cuda/engines/fusion_check.hpp"
#include "compute/cuda/runtime/runtime.hpp"

namespace ringtrain::compute::cuda {

/// A request and the memory that a program has for it.
struct EngineUse {
  RequestKey request;
  const OperationGraph* graph;
  std::span<void* const> data;  ///< as CudnnRunner::bind() takes it
};

/// Times cuDNN's proposals on the GPU, so that `engines` answers with the fastest.
class Autotuner {
 public:
  struct Settings {
    std::size_t most_candidates = 20;                   ///< of a request
    std::size_t most_workspace = std::size_t(1) << 30;  ///< bytes, and half of what is free
    double too_slow = 3;                                ///< times the best, to be given up
    double most_seconds = 60;                           ///< of all calls; what is left stays
  };
  struct Report {
    std::size_t requests = 0, plans = 0;  ///< timed
    std::size_t left = 0;                 ///< requests for which no time was left
    double seconds = 0;
    std::vector<std::string> dropped;  ///< plans that could not be executed, and why
  };

  /// All outlive this object; `cache` remembers the choices, `fusions` says which are wrong.
  Autotuner(Engines& engines, CudnnRunner& runner, EngineCache& cache, cudaStream_t stream,
            FusionCheck& fusions, Settings settings)
      : engines_(engines),
        runner_(runner),
        cache_(cache),
        stream_(stream),
        fusions_(fusions),
        settings_(settings) {}
  Autotuner(Engines& engines, CudnnRunner& runner, EngineCache& cache, cudaStream_t stream,
            FusionCheck& fusions)
      : Autotuner(engines, runner, cache, stream, fusions, {}) {}

  /// Decides each request that is undecided: that no earlier run and no earlier call has timed.
  /// Each choice is saved at once. Overwrites what the requests write. Waits. Engines bound before
  /// stay what they are. Throws Error where the GPU can do nothing more.
  void tune(const std::vector<EngineUse>& uses);
  const Report& report() const { return report_; }

 private:
  void decide(const EngineUse& use);
  std::size_t workspace_limit() const;
  /// Infinite for an engine that cannot be executed.
  double time(const Engine& engine, const EngineUse& use, double best);
  double median_time(const std::function<void()>& run, double best) const;
  std::string fault(const Engine& engine, const EngineUse& use);
  void drop(const Engine& engine, const EngineUse& use, std::string_view why);

  Engines& engines_;
  CudnnRunner& runner_;
  EngineCache& cache_;
  const cudaStream_t stream_;
  FusionCheck& fusions_;
  const Settings settings_;
  DeviceBytes workspace_;  // of the candidates
  Report report_;
};

}  // namespace ringtrain::compute::cuda
