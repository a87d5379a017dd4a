#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "compute/cuda/cudnn.hpp"
#include "compute/cuda/operation_graph.hpp"

namespace ringtrain::cuda {

/// The kernel that cuDNN's heuristics chose for a graph.
struct Engine {
  std::string name;           ///< such as "cudnn engine 15"
  std::size_t workspace = 0;  ///< bytes
  Descriptor plan;            ///< for cudnnBackendExecute
};

/// The first choice of the heuristics of which a plan can be made for `device`; nullopt when cuDNN
/// has no engine for `graph`. Engines that are compiled at run time are passed over: they need the
/// driver, so that the answer would depend on the machine.
std::optional<Engine> choose_engine(const Descriptor& graph, const Descriptor& device);

/// A question to cuDNN: which kernel does this?
struct Request {
  std::string pattern;  ///< what is computed: "relu(bn(x)) -> convolution -> statistics"
  std::string shape;    ///< all that the answer depends on beside the pattern
  double flops = 0;
  std::function<OperationGraph()> graph;  ///< throws Error where there is none
};

/// cuDNN's answer: an engine, or why there is none.
struct Answer {
  std::optional<Engine> engine;
  std::string why;
};

/// cuDNN's answers for one device, each asked for once. Not for several threads.
class Engines {
 public:
  explicit Engines(Descriptor device) : device_(std::move(device)) {}
  /// The answer stays valid as long as this object.
  const Answer& ask(const Request& request);

  /// By pattern and shape.
  using Answers = std::map<std::pair<std::string, std::string>, Answer>;
  const Answers& answers() const { return answers_; }

 private:
  Answer find(const Request& request) const;

  const Descriptor device_;
  Answers answers_;
};

}  // namespace ringtrain::cuda
