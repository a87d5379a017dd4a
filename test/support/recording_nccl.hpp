#pragma once
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "allreduce/nccl/nccl_api.hpp"
#include "ringtrain/base/error.hpp"

namespace ringtrain {

/// NCCL and CUDA without a GPU: writes down each call as "name arguments" and answers as it was
/// told to. Streams are "compute" and "sums", events are numbers. Polls are counted, not written
/// down.
class RecordingNccl final : public allreduce::NcclApi {
 public:
  /// The next answers of comm_get_async_error(); the last one stays.
  std::deque<allreduce::NcclResult> states{allreduce::NcclResult::success};
  /// What calls that start something answer.
  allreduce::NcclResult taken = allreduce::NcclResult::success;
  /// What the call whose text starts with `failing` answers.
  std::string failing;
  allreduce::NcclResult failure = allreduce::NcclResult::internal_error;
  std::string failing_in_capture;  ///< as `failing`, once a capture has begun
  int polls_until_done = 0;        ///< of an event
  std::vector<std::string> gpus{"0000:01:00.0"};
  int polls = 0;
  std::chrono::steady_clock::time_point initialised;  ///< when comm_init_rank() was called last

  std::vector<std::string> calls() const {
    const std::scoped_lock lock(mutex_);
    return calls_;
  }
  /// What others do in the order of these calls.
  void write_down(const std::string& call) { note(call); }
  void forget() {
    const std::scoped_lock lock(mutex_);
    calls_.clear();
  }
  std::ptrdiff_t count(const std::string& call) const { return std::ranges::count(calls(), call); }
  /// The place of a call in the order of calls, which has it.
  std::ptrdiff_t place(const std::string& call) const {
    const auto all = calls();
    const auto found = std::ranges::find(all, call);
    if (found == all.end()) throw Error("RecordingNccl", "no call " + call);
    return found - all.begin();
  }
  /// A stream for the communicator to follow.
  void* compute() { return this; }

  /// What ids begin with.
  static constexpr int id_byte = 42;

  allreduce::NcclResult get_unique_id(allreduce::NcclId& id) override {
    id[0] = std::byte{id_byte};
    return note("get_unique_id");
  }
  allreduce::NcclResult comm_init_rank(allreduce::NcclComm& comm, int size,
                                       const allreduce::NcclId& id, int rank,
                                       bool blocking) override {
    comm = reinterpret_cast<allreduce::NcclComm>(this);
    initialised = std::chrono::steady_clock::now();
    return note(fmt::format("init {}/{} id {}{}", rank, size, static_cast<int>(id[0]),
                            blocking ? " blocking" : ""));
  }
  allreduce::NcclResult comm_get_async_error(allreduce::NcclComm,
                                             allreduce::NcclResult& state) override {
    const std::scoped_lock lock(mutex_);
    ++polls;
    state = states.front();
    if (states.size() > 1) states.pop_front();
    return allreduce::NcclResult::success;
  }
  allreduce::NcclResult comm_finalize(allreduce::NcclComm) override { return note("finalize"); }
  void comm_destroy(allreduce::NcclComm) noexcept override { note("destroy"); }
  void comm_abort(allreduce::NcclComm) noexcept override { note("abort"); }
  allreduce::NcclResult comm_register(allreduce::NcclComm, void* data, std::size_t bytes,
                                      void*& handle) override {
    handle = data;
    return note(fmt::format("register {} bytes", bytes));
  }
  allreduce::NcclResult comm_deregister(allreduce::NcclComm, void*) override {
    return note("deregister");
  }
  allreduce::NcclResult all_reduce(void* data, std::size_t count, Element element,
                                   allreduce::Reduction reduction, allreduce::NcclComm,
                                   allreduce::GpuStream stream) override {
    const auto bytes = static_cast<std::byte*>(data) - reinterpret_cast<const std::byte*>(base);
    return note(fmt::format("{} {}+{} {} on {}",
                            reduction == allreduce::Reduction::sum ? "sum" : "average",
                            static_cast<std::size_t>(bytes) / bytes_of(element), count,
                            name_of(element), name(stream)));
  }
  allreduce::NcclResult reduce_scatter(const float* all, float* own, std::size_t part,
                                       allreduce::NcclComm, allreduce::GpuStream stream) override {
    return note(
        fmt::format("scatter {} to {}+{} on {}", all - base, own - base, part, name(stream)));
  }
  allreduce::NcclResult all_gather(const float* own, float* all, std::size_t part,
                                   allreduce::NcclComm, allreduce::GpuStream stream) override {
    return note(
        fmt::format("gather {}+{} to {} on {}", own - base, part, all - base, name(stream)));
  }
  allreduce::NcclResult group_start() override { return note("group"); }
  allreduce::NcclResult group_end() override { return note("end of group"); }
  allreduce::NcclResult broadcast(float* data, std::size_t count, int root, allreduce::NcclComm,
                                  allreduce::GpuStream stream) override {
    return note(fmt::format("broadcast {}+{} of {} on {}", data - base, count, root, name(stream)));
  }
  std::string words(allreduce::NcclResult result, allreduce::NcclComm) override {
    return fmt::format("NCCL result {}, its last words", static_cast<int>(result));
  }

  std::vector<std::string> visible_devices() override { return gpus; }
  void set_device(int device) override { note(fmt::format("device {}", device)); }
  allreduce::GpuStream stream_create() override {
    note("stream");
    return sums();
  }
  void stream_destroy(allreduce::GpuStream) noexcept override { note("end of stream"); }
  allreduce::GpuEvent event_create() override {
    return reinterpret_cast<allreduce::GpuEvent>(++events_);
  }
  void event_destroy(allreduce::GpuEvent) noexcept override { note("end of event"); }
  void event_record(allreduce::GpuEvent event, allreduce::GpuStream stream) override {
    note(fmt::format("record {} on {}", number(event), name(stream)));
  }
  void stream_wait_event(allreduce::GpuStream stream, allreduce::GpuEvent event) override {
    note(fmt::format("{} waits for {}", name(stream), number(event)));
  }
  bool event_query(allreduce::GpuEvent) override {
    ++queries;
    return polls_until_done-- <= 0;
  }
  void begin_capture(allreduce::GpuStream stream) override {
    if (note(fmt::format("capture {}", name(stream))) == failure)
      throw Error("cudaStreamBeginCapture", "as the test wants");
    const std::scoped_lock lock(mutex_);
    if (!failing_in_capture.empty()) failing = failing_in_capture;
  }
  void end_capture(allreduce::GpuStream) override {
    if (note("end of capture") == failure) throw Error("cudaStreamEndCapture", "as the test wants");
  }
  void* mem_alloc(std::size_t bytes, bool shared) override {
    note(shared ? "alloc shared" : "alloc");
    const std::scoped_lock lock(mutex_);
    return memory_.emplace_back(std::make_unique<std::byte[]>(bytes)).get();
  }
  void mem_free(void* data, bool) noexcept override {
    note("free");
    const std::scoped_lock lock(mutex_);
    std::erase_if(memory_, [data](const auto& each) { return each.get() == data; });
  }
  void copy(void* to, const void* from, std::size_t bytes, allreduce::GpuStream stream) override {
    const bool is_back = from < base || from >= base + on_gpu;
    const auto* const gpu = static_cast<const float*>(is_back ? to : from);
    note(fmt::format("copy {}+{} {} on {}", gpu - base, bytes / sizeof(float),
                     is_back ? "back" : "to the host", name(stream)));
    std::memcpy(to, from, bytes);
  }
  void stream_synchronize(allreduce::GpuStream stream) noexcept override {
    note(fmt::format("wait for {}", name(stream)));
  }
  bool pin(void*, std::size_t bytes) override {
    note(fmt::format("pin {} bytes", bytes));
    return can_pin;
  }
  void unpin(void*) noexcept override { note("unpin"); }
  void zero(void* data, std::size_t bytes, allreduce::GpuStream) override {
    std::fill_n(static_cast<std::byte*>(data), bytes, std::byte{0});
  }

  const float* base = nullptr;  ///< views are written as their distance from here
  std::ptrdiff_t on_gpu = 0;    ///< how many numbers from `base` on copy() takes for the GPU's
  bool can_pin = true;
  int queries = 0;  ///< of events, by the host
  /// What a call whose text starts with `blocked` waits for.
  std::string blocked;
  std::function<void()> until = {};

 private:
  allreduce::NcclResult note(const std::string& call) {
    if (!blocked.empty() && call.starts_with(blocked)) until();
    const std::scoped_lock lock(mutex_);
    calls_.push_back(call);
    return !failing.empty() && call.starts_with(failing) ? failure : taken;
  }
  allreduce::GpuStream sums() { return reinterpret_cast<allreduce::GpuStream>(&events_); }
  const char* name(allreduce::GpuStream stream) { return stream == sums() ? "sums" : "compute"; }
  static std::uintptr_t number(allreduce::GpuEvent event) {
    return reinterpret_cast<std::uintptr_t>(event);
  }

  mutable std::mutex mutex_;
  std::vector<std::string> calls_;
  std::vector<std::unique_ptr<std::byte[]>> memory_;  // what communicators leave behind ends here
  std::uintptr_t events_ = 0;
};

}  // namespace ringtrain
