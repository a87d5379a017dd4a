#pragma once
#include <memory>
#include <vector>

#include "support/host_gpu/scheduler.hpp"

namespace ringtrain::host_gpu {

/// Captured work, to run after the nodes with the numbers `after`.
struct Node {
  const char* name;
  Work run;
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
  cudaError_t add(Stream& stream, const char* name, Work work);
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

/// Runs all nodes in an order drawn from `scheduler`.
void run(const Nodes& nodes, Scheduler& scheduler);

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
