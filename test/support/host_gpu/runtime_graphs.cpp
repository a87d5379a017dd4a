#include <cstdlib>
#include <string_view>
#include <utility>

#include "support/host_gpu/device.hpp"

using namespace ringtrain::host_gpu;

namespace {

cudaError_t begin(Device& gpu, cudaStream_t handle, cudaStreamCaptureMode mode) {
  Stream& stream = gpu.scheduler.stream(handle);
  if (&stream == &gpu.scheduler.stream(nullptr)) return cudaErrorStreamCaptureUnsupported;
  if (stream.capture) return cudaErrorIllegalState;
  stream.capture = std::make_shared<Capture>(&stream, mode);
  stream.capture->streams = {&stream};
  gpu.captures.push_back(stream.capture);
  return cudaSuccess;
}

// For whole programs: SIMULATED_GPU_FAULT is capture.
bool refuses(const Device& gpu) {
  const char* const asked = std::getenv("SIMULATED_GPU_FAULT");
  return gpu.refuses_captures || (asked != nullptr && std::string_view(asked) == "capture");
}

cudaError_t end(Device& gpu, Stream& stream, cudaGraph_t* graph) {
  *graph = nullptr;
  const std::shared_ptr<Capture> capture = stream.capture;
  if (!capture) return cudaErrorIllegalState;
  if (capture->origin != &stream) {
    capture->valid = false;
    return cudaErrorStreamCaptureUnmatched;
  }
  const bool joined = capture->joined();
  capture->end();
  std::erase(gpu.captures, capture);
  const Nodes nodes = std::exchange(capture->nodes, {});  // events keep the capture
  if (!capture->valid || refuses(gpu)) return cudaErrorStreamCaptureInvalidated;
  if (!joined) return cudaErrorStreamCaptureUnjoined;
  *graph = new CUgraph_st{std::make_shared<const Nodes>(nodes)};
  return cudaSuccess;
}

// Launches of one graph follow each other, whatever their streams.
cudaError_t launch(Device& gpu, CUgraphExec_st& graph, cudaStream_t handle) {
  const auto work = [run = std::make_shared<GraphRun>(graph.nodes), &gpu] {
    return run->advance(gpu.scheduler);
  };
  const cudaError_t code = gpu.attempt(handle, "graph", work, &Counts::graphs, {graph.last});
  Stream& stream = gpu.scheduler.stream(handle);
  if (code == cudaSuccess && !stream.capture) graph.last = stream.last;
  return code;
}

}  // namespace

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return call([&](Device& gpu) { return begin(gpu, stream, mode); });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return call([&](Device& gpu) { return end(gpu, gpu.scheduler.stream(stream), graph); });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  return call([&](Device& gpu) {
    const Stream& stream = gpu.scheduler.stream(handle);
    *status = !stream.capture         ? cudaStreamCaptureStatusNone
              : stream.capture->valid ? cudaStreamCaptureStatusActive
                                      : cudaStreamCaptureStatusInvalidated;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
  return call([&](Device&) {
    if (!graph) return cudaErrorInvalidValue;
    *executable = new CUgraphExec_st{graph->nodes, nullptr};
    return cudaSuccess;
  });
}

cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  return call([&](Device& gpu) { return launch(gpu, *graph, stream); });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  return call([&](Device&) {
    delete graph;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return call([&](Device&) {
    delete graph;
    return cudaSuccess;
  });
}

}  // extern "C"
