#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compute/cuda/engines/engine_cache.hpp"
#include "compute/cuda/engines/operation_graph.hpp"
#include "compute/cuda/runtime/cudnn.hpp"
#include "compute/cuda/runtime/device.hpp"

namespace ringtrain::compute::cuda {

/// A kernel that cuDNN's heuristics propose for a graph.
struct Engine {
  std::string name;           ///< such as "cudnn engine 15"
  std::size_t workspace = 0;  ///< bytes
  Descriptor plan;            ///< for cudnnBackendExecute
  std::size_t place = 0;      ///< among all proposals, the heuristics' best is 0
};

/// Which proposals may be used. None whose sums are rounded to 16 bits on their way.
struct EngineRules {
  bool deterministic = false;  ///< only those that give the same bits every time
  bool compiled = false;       ///< also those that are compiled at run time, where they are fastest
};

/// A question to cuDNN: which kernel does this?
struct Request {
  std::string pattern;  ///< what is computed: "relu(bn(x)) -> convolution -> statistics"
  std::string shape;    ///< all that the answer depends on beside the pattern
  double flops = 0;
  std::function<OperationGraph()> graph;  ///< throws Error where there is none
  /// Bytes that fused steps do not move, beside the same in parts; 0: it is no fused step. An
  /// engine that writes and reads as much workspace saves nothing.
  std::size_t saved_bytes = 0;

  RequestKey key() const { return {pattern, shape}; }
};

/// cuDNN's answer: an engine, or why there is none.
struct Answer {
  /// Who says that this engine is the best.
  enum class Source { heuristics, cache, timing };

  std::optional<Engine> engine;
  std::string why;
  Source source = Source::heuristics;
};

/// cuDNN's answers for one device, each asked for once. Not for several threads.
class Engines {
 public:
  /// `known`: choices of earlier runs, which are taken where they still hold; outlives this object.
  explicit Engines(PlanTarget target, EngineRules rules = {}, const EngineCache* known = nullptr)
      : target_(std::move(target)), rules_(rules), known_(known) {}

  /// The known choice, or the first choice of the heuristics of which a plan can be made. That is
  /// never an engine that is compiled at run time: those need the driver, so that the answer would
  /// depend on the machine. The answer stays valid as long as this object.
  const Answer& ask(const Request& request);

  /// The first proposals for `graph`, at most `most`, of which a plan can be made that needs no
  /// more workspace than `workspace` bytes. They hold GPU memory on a real GPU.
  std::vector<Engine> candidates(const OperationGraph& graph, std::size_t most,
                                 std::size_t workspace) const;
  /// The known choice for `request`, whose graph this is, where it still holds.
  std::optional<Engine> known(const RequestKey& request, const OperationGraph& graph) const;
  /// `engine` is the answer from now on. No program uses the answer yet.
  void choose(const RequestKey& request, Engine engine);
  /// Likewise, and it may still be replaced by a faster one.
  void replace(const RequestKey& request, Engine engine) {
    answers_.at(request).engine = std::move(engine);
  }
  /// There is no engine from now on, for this reason. No program uses the answer yet.
  void refuse(const RequestKey& request, std::string why) {
    answers_[request] = {std::nullopt, std::move(why)};
  }
  /// The answer stays: no other proposal is better.
  void keep(const RequestKey& request) { answers_.at(request).source = Answer::Source::timing; }

  using Answers = std::map<RequestKey, Answer>;
  const Answers& answers() const { return answers_; }

 private:
  Answer find(const Request& request) const;
  std::optional<Engine> known(const RequestKey& request, const Descriptor& graph) const;

  const PlanTarget target_;
  const EngineRules rules_;
  const EngineCache* const known_;
  Answers answers_;
};

}  // namespace ringtrain::compute::cuda
