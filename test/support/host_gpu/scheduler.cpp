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

OperationPtr Scheduler::queue(Stream& stream, const char* name, Attempt work,
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

bool Scheduler::run_until(const OperationPtr& target) {
  while (target && target->finished == 0) {
    const Ran ran = run_one();
    expects(ran != Ran::nothing, "host_gpu: what is waited for can run");
    if (ran == Ran::waits) return false;
  }
  return true;
}

bool Scheduler::run_all() {
  Ran ran = run_one();
  while (ran == Ran::one) ran = run_one();
  return ran == Ran::nothing;
}

void Scheduler::run_some() {
  for (std::size_t left = draw(4); left > 0 && run_one() == Ran::one; --left) {
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
Scheduler::Ran Scheduler::run_one() {
  std::vector<Stream*> streams = ready();
  if (streams.empty()) return Ran::nothing;
  while (!streams.empty()) {
    if (draw(4) == 0 || std::ranges::count(streams, favourite_) == 0)
      favourite_ = streams[draw(streams.size())];
    if (advance(favourite_)) return Ran::one;
    std::erase(streams, favourite_);
  }
  return Ran::waits;
}

bool Scheduler::advance(Stream* stream) {
  const OperationPtr operation = std::move(stream->queued.front());
  stream->queued.pop_front();
  operation->finished = now();
  Attempt work = std::move(operation->run);
  if (work && !work()) {
    operation->run = std::move(work);
    operation->finished = 0;
    stream->queued.push_front(operation);
    return false;
  }
  operation->after.clear();
  if (stream->destroyed) destroy(stream);
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
