#include "support/host_gpu/capture.hpp"

#include <algorithm>

namespace ringtrain::host_gpu {

cudaError_t Capture::add(Stream& stream, const char* name, Attempt work) {
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

std::vector<std::size_t> GraphRun::ready(const std::vector<bool>& waits) const {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < nodes_->size(); ++i)
    if (!done_[i] && !waits[i] &&
        std::ranges::all_of((*nodes_)[i].after, [&](std::size_t j) { return done_[j]; }))
      found.push_back(i);
  return found;
}

bool GraphRun::advance(Scheduler& scheduler) {
  if (done_.empty()) done_.resize(nodes_->size());
  std::vector<bool> waits(nodes_->size());
  for (auto next = ready(waits); !next.empty(); next = ready(waits)) {
    const std::size_t node = next[scheduler.draw(next.size())];
    const bool done = (*nodes_)[node].run();
    (done ? done_ : waits)[node] = true;
  }
  if (!std::ranges::all_of(done_, std::identity{})) return false;
  done_.clear();
  return true;
}

}  // namespace ringtrain::host_gpu
