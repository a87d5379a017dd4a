#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compute/cuda/engines/cudnn_runner.hpp"
#include "compute/cuda/engines/engine.hpp"
#include "compute/cuda/engines/fusion_check.hpp"
#include "compute/cuda/runtime/runtime.hpp"
#include "ringtrain/base/memory/view.hpp"

namespace ringtrain::compute::cuda {

/// A request and the memory that a program has for it.
struct EngineUse {
  RequestKey request;
  const OperationGraph* graph;
  std::span<void* const> data;  ///< as CudnnRunner::bind() takes it
  View parameters = {};         ///< which are never written, and may be some of the data
};

/// Seconds of a clock that never goes back.
double steady_seconds();

/// Times cuDNN's proposals on the GPU, so that `engines` answers with the fastest. All proposals
/// for a request take turns, a sample each, so that a GPU whose clock changes is as slow for all.
/// They read numbers as training has them, and none of those is in the L2 cache when a run begins.
class Autotuner {
 public:
  struct Settings {
    std::size_t most_candidates = 20;                       ///< of a request
    std::size_t most_workspace = std::size_t(1) << 30;      ///< bytes, and half of what is free
    double too_slow = 3;                                    ///< times the best, to be given up
    double most_seconds = 60;                               ///< of all calls; what is left stays
    std::function<double()> clock = steady_seconds;         ///< in seconds
    double progress_seconds = 5;                            ///< between two lines, at least
    std::function<void(const std::string&)> progress = {};  ///< gets those lines; null: nobody
  };
  struct Report {
    std::size_t requests = 0, plans = 0;  ///< timed
    std::size_t left = 0;                 ///< requests for which time or memory ran out
    double seconds = 0;
    std::vector<std::string> dropped;  ///< plans that could not be executed, and why
  };

  /// All outlive this object; `cache` remembers the choices, `fusions` says which are wrong.
  Autotuner(Engines& engines, CudnnRunner& runner, EngineCache& cache, cudaStream_t stream,
            FusionCheck& fusions, Settings settings);

  /// Decides each request that is undecided: that no earlier run and no earlier call has timed.
  /// Each choice is saved at once. Overwrites what the requests read and write, except parameters
  /// and constants. Waits. Engines bound before stay what they are. Leaves all where there is too
  /// little memory for twice the L2 cache. Throws Error where the GPU can do nothing more.
  void tune(const std::vector<EngineUse>& uses);
  /// From now on nothing is timed: tune() takes choices that the cache has got meanwhile.
  void follow() { follows_ = true; }
  const Report& report() const { return report_; }

 private:
  static constexpr int runs_a_sample = 4;

  // Of one run, and the time between them.
  struct Events {
    Event begin = make_timed_event(), end = make_timed_event();
  };
  // A proposal that runs, as a graph, which is how training runs it: else small kernels would be as
  // slow as the host launches them.
  struct Candidate {
    Engine* engine;
    std::function<void()> run;
    Graph graph;
    std::vector<double> us = {};
    bool given_up = false;
  };

  double elapsed() const { return report_.seconds + settings_.clock() - start_; }
  bool is_late() const { return elapsed() > settings_.most_seconds; }
  bool make_flush();
  void adopt(const EngineUse& use);
  void show_progress(std::size_t done, std::size_t all);
  bool decide(const EngineUse& use);
  void fill_inputs(const EngineUse& use);
  const DeviceBytes& noise_of(const OperationGraph& graph, std::size_t value);
  std::size_t workspace_limit() const;
  void make_workspace(std::vector<Engine>& engines, const EngineUse& use);
  std::optional<Candidate> prepare(Engine& engine, const EngineUse& use);
  void time(std::vector<Candidate>& candidates, const EngineUse& use);
  double sample(const Candidate& candidate) const;
  void choose(std::vector<Candidate>& candidates, const EngineUse& use);
  std::string fault(const Engine& engine, const EngineUse& use);
  void drop(const Engine& engine, const EngineUse& use, std::string_view why);

  Engines& engines_;
  CudnnRunner& runner_;
  EngineCache& cache_;
  const cudaStream_t stream_;
  FusionCheck& fusions_;
  const Settings settings_;
  const std::array<Events, runs_a_sample> runs_;
  DeviceBytes workspace_, flush_;  // of the candidates; what fills the L2 cache
  double start_ = 0, told_ = 0;    // by the clock
  bool follows_ = false;
  std::set<RequestKey> left_;
  Report report_;
};

}  // namespace ringtrain::compute::cuda
