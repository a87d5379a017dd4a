#include "support/host_gpu/capture.hpp"

#include <algorithm>

namespace ringtrain::host_gpu {

cudaError_t Capture::add(Stream& stream, const char* name, Work work) {
  if (!valid) return cudaErrorStreamCaptureInvalidated;
  nodes.push_back({name, std::move(work), stream.tips});
  stream.tips = {nodes.size() - 1};
  return cudaSuccess;
}

bool Capture::joined() const {
  std::vector<bool> before(nodes.size());
  for (const std::size_t tip : origin->tips) before[tip] = true;
  for (std::size_t node = nodes.size(); node-- > 0;)  // nodes follow only earlier ones
    if (before[node])
      for (const std::size_t earlier : nodes[node].after) before[earlier] = true;
  return std::ranges::all_of(before, std::identity{});
}

void Capture::end() {
  ended = true;
  for (Stream* stream : streams) {
    stream->capture.reset();
    stream->tips.clear();
  }
  streams.clear();
}

cudaError_t join(Stream& stream, const Event& event) {
  if (event.capture->ended) return cudaErrorCapturedEvent;
  if (!event.capture->valid) return cudaErrorStreamCaptureInvalidated;
  if (!stream.capture) {
    stream.capture = event.capture;
    stream.capture->streams.push_back(&stream);
  } else if (stream.capture != event.capture) {
    stream.capture->valid = event.capture->valid = false;
    return cudaErrorStreamCaptureMerge;
  }
  for (const std::size_t tip : event.tips)
    if (std::ranges::count(stream.tips, tip) == 0) stream.tips.push_back(tip);
  return cudaSuccess;
}

void run(const Nodes& nodes, Scheduler& scheduler) {
  std::vector<bool> done(nodes.size());
  const auto is_ready = [&](std::size_t i) {
    return !done[i] && std::ranges::all_of(nodes[i].after, [&](auto j) { return done[j]; });
  };
  for (std::size_t left = nodes.size(); left > 0; --left) {
    std::vector<std::size_t> ready;
    for (std::size_t i = 0; i < nodes.size(); ++i)
      if (is_ready(i)) ready.push_back(i);
    const std::size_t next = ready[scheduler.draw(ready.size())];
    nodes[next].run();
    done[next] = true;
  }
}

}  // namespace ringtrain::host_gpu
