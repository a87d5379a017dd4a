#include "support/host_gpu/scheduler.hpp"

#include <algorithm>
#include <limits>

#include "ringtrain/base/error.hpp"

namespace ringtrain::host_gpu {

Scheduler::Scheduler() { create(true); }

Stream* Scheduler::create(bool blocking) {
  auto stream = std::make_unique<CUstream_st>();
  stream->blocking = blocking;
  return streams_.emplace_back(std::move(stream)).get();
}

void Scheduler::destroy(Stream* stream) {
  stream->destroyed = true;
  if (!stream->queued.empty()) return;
  std::erase_if(streams_, [&](const auto& owned) { return owned.get() == stream; });
}

Stream& Scheduler::stream(cudaStream_t handle) {
  expects(handle != cudaStreamPerThread, "host_gpu: no stream per thread");
  return handle == nullptr || handle == cudaStreamLegacy ? *streams_[0] : *handle;
}

OperationPtr Scheduler::queue(Stream& stream, const char* name, Work work,
                              std::vector<OperationPtr> after) {
  if (&stream == streams_[0].get()) {
    for (const auto& other : streams_)
      if (other->blocking) after.push_back(other->last);
  } else if (stream.blocking) {
    after.push_back(streams_[0]->last);
  }
  stream.last = std::make_shared<Operation>(name, std::move(work), std::move(after));
  stream.queued.push_back(stream.last);
  return stream.last;
}

void Scheduler::run_until(const OperationPtr& target) {
  while (target && target->finished == 0)
    expects(run_one(), "host_gpu: what is waited for can run");
}

void Scheduler::run_all() {
  while (run_one()) {
  }
}

void Scheduler::run_some() {
  for (std::size_t left = draw(4); left > 0 && run_one(); --left) {
  }
}

std::vector<Stream*> Scheduler::ready() {
  std::vector<Stream*> found;
  for (const auto& stream : streams_)
    if (!stream->queued.empty() &&
        std::ranges::all_of(stream->queued.front()->after,
                            [](const auto& other) { return !other || other->finished != 0; }))
      found.push_back(stream.get());
  return found;
}

// Mostly goes on with one stream, so that streams also get far ahead of others.
bool Scheduler::run_one() {
  const std::vector<Stream*> streams = ready();
  if (streams.empty()) return false;
  if (draw(4) == 0 || std::ranges::count(streams, favourite_) == 0)
    favourite_ = streams[draw(streams.size())];
  Stream* const stream = favourite_;
  const OperationPtr operation = std::move(stream->queued.front());
  stream->queued.pop_front();
  operation->finished = now();
  operation->after.clear();
  if (stream->destroyed) destroy(stream);
  if (const Work work = std::move(operation->run)) work();
  return true;
}

const char* Scheduler::pending() const {
  for (const auto& stream : streams_)
    for (const auto& operation : stream->queued)
      if (operation->run) return operation->name;
  return nullptr;
}

void Scheduler::drop_pending() {
  for (const auto& stream : streams_)
    for (; !stream->queued.empty(); stream->queued.pop_front())
      stream->queued.front()->finished = now();
}

}  // namespace ringtrain::host_gpu
