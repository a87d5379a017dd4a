#include "allreduce/nccl/nccl_group.hpp"

#include <fmt/core.h>

#include <exception>
#include <future>
#include <thread>

namespace ringtrain::allreduce {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// A sum is taken within microseconds, the first connections take seconds.
void rest(Clock::duration waited) {
  if (waited < 1ms)
    std::this_thread::yield();
  else
    std::this_thread::sleep_for(200us);
}

template <class Done>
void wait_at_most(Clock::duration limit, const Done& done) noexcept {
  const Clock::time_point start = Clock::now();
  while (!done() && Clock::now() - start < limit) rest(Clock::now() - start);
}

}  // namespace

CallWatch::CallWatch(double limit_s, std::function<void(const char* name)> late)
    : limit_(limit_s), late_(std::move(late)), thread_([this] { check(); }) {}

CallWatch::~CallWatch() {
  {
    const std::scoped_lock lock(mutex_);
    ended_ = true;
  }
  ends_.notify_one();
  thread_.join();
}

void CallWatch::enter(const char* name) {
  const std::scoped_lock lock(mutex_);
  inside_ = name;
  since_ = Clock::now();
}

// Seldom, so that calls cost nothing more.
void CallWatch::check() {
  std::unique_lock lock(mutex_);
  while (!ends_.wait_for(lock, limit_ / 20, [this] { return ended_; })) {
    if (inside_ == nullptr || Clock::now() - since_ < limit_) continue;
    const char* const name = inside_;
    lock.unlock();  // the call may return after all
    return late_(name);
  }
}

NcclGroup::NcclGroup(std::shared_ptr<NcclApi> calls, NcclRank me, const NcclId& id,
                     OnStuck on_stuck)
    : calls_(std::move(calls)), me_(std::move(me)) {
  if (on_stuck)
    watch_.emplace(me_.deadline_s, [this, on_stuck = std::move(on_stuck)](const char* name) {
      on_stuck(late(name));
    });
  call("ncclCommInitRankConfig",
       [&](NcclComm) { return calls_->comm_init_rank(comm_, me_.size, id, me_.rank, blocks()); });
}

Error NcclGroup::late(const char* name) const {
  return {Exit::stuck, name,
          fmt::format("not done after {} s on {}; another rank may be stuck or gone",
                      me_.deadline_s, who())};
}

NcclResult NcclGroup::state() {
  NcclResult state = NcclResult::success;
  const NcclResult asked = calls_->comm_get_async_error(comm_, state);
  return asked == NcclResult::success ? state : asked;
}

NcclResult NcclGroup::look_again(const char* name, Clock::time_point start) {
  const Clock::duration waited = Clock::now() - start;
  if (waited > std::chrono::duration<double>(me_.deadline_s)) {
    cancel();
    throw late(name);
  }
  rest(waited);
  return open([this] { return state(); });
}

void NcclGroup::wait(const char* name, const std::function<bool()>& done) {
  const Clock::time_point start = Clock::now();
  while (!done())
    if (const NcclResult result = look_again(name, start); is_failure(result)) fail(name, result);
}

void NcclGroup::check() {
  NcclResult result = NcclResult::success;
  {
    const Inside inside(inside_);
    if (phase_ == Phase::open) result = state();
  }
  if (is_failure(result)) fail("sum between GPUs", result);
}

void NcclGroup::fail(const char* name, NcclResult result) {
  std::string words;
  open([&] {
    words = calls_->words(result, comm_);
    return result;
  });
  cancel();
  const std::string reason = fmt::format("{}; on {}", words, who());
  if (result == NcclResult::remote_error) throw Error(Exit::rank_lost, name, reason);
  throw Error(name, reason);
}

std::string NcclGroup::who() const {
  return fmt::format("rank {}/{}, host {}, GPU {}", me_.rank, me_.size, me_.host, me_.device);
}

// Whoever comes first ends the communicator, once no other thread is in a call. One that hangs in
// its call cannot prevent it: NCCL allows an abort beside any call.
bool NcclGroup::begin(Phase end) noexcept {
  Phase expected = Phase::open;
  if (!phase_.compare_exchange_strong(expected, end)) {
    const auto ended = [](Phase now) { return now == Phase::closed || now == Phase::cancelled; };
    wait_at_most(4s, [&] { return ended(phase_); });
    return false;
  }
  wait_at_most(1s, [this] { return inside_ == 0; });
  return true;
}

void NcclGroup::close() {
  call("ncclCommFinalize", [this](NcclComm comm) { return calls_->comm_finalize(comm); });
  if (!begin(Phase::closing)) return;
  const Watched watched(watch_, "ncclCommDestroy");
  calls_->comm_destroy(comm_);
  phase_ = Phase::closed;
}

void NcclGroup::cancel() noexcept {
  if (!begin(Phase::cancelling)) return;
  if (comm_ != nullptr) abort();
  phase_ = Phase::cancelled;
}

// NCCL first tells its kernels to end, then waits for what may never come, such as the end of CUDA
// graphs that hold its calls: so a thread of its own, left behind when it does not return.
void NcclGroup::abort() const noexcept {
  try {
    std::packaged_task<void()> task([calls = calls_, comm = comm_] { calls->comm_abort(comm); });
    const std::future<void> done = task.get_future();
    std::thread(std::move(task)).detach();
    done.wait_for(2s);
  } catch (const std::exception&) {  // no thread to be had: the communicator stays
  }
}

}  // namespace ringtrain::allreduce
