#pragma once
#include <memory>
#include <vector>

#include "support/host_gpu/scheduler.hpp"

namespace ringtrain::host_gpu {

/// Captured work, to run after the nodes with the numbers `after`.
struct Node {
  const char* name;
  Attempt run;
  std::vector<std::size_t> after;
};
using Nodes = std::vector<Node>;

/// Work of several streams on its way to a graph.
struct Capture {
  Stream* origin;
  cudaStreamCaptureMode mode;
  Nodes nodes = {};
  std::vector<Stream*> streams = {};
  bool valid = true, ended = false;

  /// Adds work to `stream`, which takes part.
  cudaError_t add(Stream& stream, const char* name, Attempt work);
  /// Whether everything captured precedes what the origin would capture next.
  bool joined() const;
  /// All streams leave.
  void end();
};

/// What was recorded last: an operation, or, in a capture, its nodes.
struct Event {
  bool timed = true;
  OperationPtr operation = nullptr;
  std::shared_ptr<Capture> capture = nullptr;
  std::vector<std::size_t> tips = {};
};

/// `stream` joins the event's capture or, where it takes part already, follows its nodes.
cudaError_t join(Stream& stream, const Event& event);

/// Launches of a graph, one after the other.
class GraphRun {
 public:
  explicit GraphRun(std::shared_ptr<const Nodes> nodes) : nodes_(std::move(nodes)) {}
  /// Runs what can be run of its nodes, in an order drawn from `scheduler`. Whether all are done.
  bool advance(Scheduler& scheduler);

 private:
  std::vector<std::size_t> ready(const std::vector<bool>& waits) const;

  const std::shared_ptr<const Nodes> nodes_;
  std::vector<bool> done_;  // of this launch; empty before its first node
};

}  // namespace ringtrain::host_gpu

/// CUDA's own, incomplete names.
struct CUevent_st : ringtrain::host_gpu::Event {};
struct CUgraph_st {
  std::shared_ptr<const ringtrain::host_gpu::Nodes> nodes;
};
struct CUgraphExec_st {
  std::shared_ptr<const ringtrain::host_gpu::Nodes> nodes;
  ringtrain::host_gpu::OperationPtr last;  ///< its latest launch
};
