#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "allreduce/nccl/nccl_api.hpp"
#include "ringtrain/base/error.hpp"

namespace ringtrain::allreduce {

/// This rank, as errors name it.
struct NcclRank {
  int rank = 0, size = 1;
  std::string host;
  int device = 0;
  double deadline_s = 120;  ///< the longest that any call may take
};

/// What is called on a thread of its own where a call that blocks is not over in time: it ends the
/// process, as nobody can take that call back.
using OnStuck = std::function<void(const Error&)>;

/// Watches the calls of one thread, of which each may block it.
class CallWatch {
 public:
  /// `late` gets the name of a call that is not over after `limit_s`, once, on the watch's thread.
  CallWatch(double limit_s, std::function<void(const char* name)> late);
  ~CallWatch();
  CallWatch(const CallWatch&) = delete;

  /// From `name` on until it is null again.
  void enter(const char* name);

 private:
  void check();

  const std::chrono::duration<double> limit_;
  const std::function<void(const char*)> late_;
  std::mutex mutex_;
  std::condition_variable ends_;
  bool ended_ = false;
  const char* inside_ = nullptr;
  std::chrono::steady_clock::time_point since_;
  std::thread thread_;
};

/// The ranks of a job as NCCL knows them: one communicator, whose calls do not block unless asked
/// to, and its end. A failure aborts it and is thrown as Error with rank, host, GPU and NCCL's last
/// words; Exit::stuck after the deadline, Exit::rank_lost where another rank has gone.
class NcclGroup {
 public:
  /// Collective; waits for all ranks. The calls are shared because an abort that hangs is left
  /// behind. `on_stuck`: NCCL's calls block, and this hears of one that takes longer than the
  /// deadline; null: they do not block.
  NcclGroup(std::shared_ptr<NcclApi> calls, NcclRank me, const NcclId& id, OnStuck on_stuck = {});
  /// Aborts what was not closed.
  ~NcclGroup() { cancel(); }
  NcclGroup(const NcclGroup&) = delete;

  const NcclRank& me() const { return me_; }
  /// Limits calls from now on, where they do not block. Not while another thread is in one.
  void set_deadline(double seconds) { me_.deadline_s = seconds; }
  /// Whether NCCL's calls return only when it has taken them.
  bool blocks() const { return watch_.has_value(); }

  /// Makes a call of NCCL and waits until NCCL has taken it, which is not its end on the GPU. The
  /// wait asks no stream and no event, so that it may stand in a capture.
  template <class Call>
  void call(const char* name, const Call& call) {
    const Clock::time_point start = Clock::now();
    NcclResult result = open([&] {
      const Watched watched(watch_, name);
      return call(comm_);
    });
    while (result == NcclResult::in_progress) result = look_again(name, start);
    if (result != NcclResult::success) fail(name, result);
  }
  /// Makes a call for each of `all`, as one of NCCL's groups, and waits as call() does.
  template <class All, class Call>
  void call_together(const char* name, const All& all, const Call& call_one) {
    call(name, [&](NcclComm comm) {
      NcclResult result = calls_->group_start();
      if (is_failure(result)) return result;
      for (auto one = all.begin(); one != all.end() && !is_failure(result); ++one)
        result = call_one(*one, comm);
      const NcclResult end = calls_->group_end();  // also of one that failed
      return is_failure(result) ? result : end;
    });
  }
  /// Waits until `done` says so; `name` is what it waits for.
  void wait(const char* name, const std::function<bool()>& done);
  /// Throws what went wrong in the background. From any thread; nothing once the group is closed or
  /// cancelled.
  void check();
  /// Ends the group when all ranks are done with it. Collective. CUDA graphs that hold its calls
  /// are destroyed before: NCCL waits for them.
  void close();
  /// Gives everything up, now: what runs on the GPU ends. From any thread, and as often as wanted.
  /// Returns when NCCL has ended, at the latest after some seconds.
  void cancel() noexcept;
  /// Whether it was given up, by whomever: the GPU may then still be at work.
  bool is_cancelled() const noexcept { return phase_ >= Phase::cancelling; }

 private:
  enum class Phase { open, closing, closed, cancelling, cancelled };
  using Clock = std::chrono::steady_clock;

  /// Runs `use` unless the communicator is gone, and keeps it from going meanwhile.
  template <class Use>
  NcclResult open(const Use& use) {
    const Inside inside(inside_);
    if (phase_ != Phase::open) throw Error("sum between GPUs", "given up");
    return use();
  }
  static bool is_failure(NcclResult result) {
    return result != NcclResult::success && result != NcclResult::in_progress;
  }
  struct Watched {
    Watched(std::optional<CallWatch>& watch, const char* name) : watch_(watch) {
      if (watch_) watch_->enter(name);
    }
    ~Watched() {
      if (watch_) watch_->enter(nullptr);
    }
    Watched(const Watched&) = delete;
    std::optional<CallWatch>& watch_;
  };
  struct Inside {
    explicit Inside(std::atomic<int>& count) : count_(count) { ++count_; }
    ~Inside() { --count_; }
    Inside(const Inside&) = delete;
    std::atomic<int>& count_;
  };

  NcclResult state();
  NcclResult look_again(const char* name, Clock::time_point start);
  bool begin(Phase end) noexcept;
  void abort() const noexcept;
  std::string who() const;
  Error late(const char* name) const;
  [[noreturn]] void fail(const char* name, NcclResult result);

  const std::shared_ptr<NcclApi> calls_;
  NcclRank me_;
  NcclComm comm_ = nullptr;
  std::atomic<int> inside_ = 0;  // threads that are in a call
  std::atomic<Phase> phase_ = Phase::open;
  std::optional<CallWatch> watch_;  // where calls block
};

}  // namespace ringtrain::allreduce
