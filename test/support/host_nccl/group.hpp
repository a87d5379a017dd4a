#pragma once
#include <nccl.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "support/host_nccl/fault.hpp"
#include "support/host_nccl/job_memory.hpp"

namespace ringtrain::host_nccl {

/// Says on standard error what a program did that NCCL forbids, and that no result may show.
void complain(const std::string& what);

class Collective;

/// A rank's communicator. As NCCL's that do not block: a call is only noted, and a thread of the
/// group's makes it. While the group lives that thread lets the GPU go on, too, as a real one does.
class Group {
 public:
  /// Starts to join the others. `device` is CUDA's number of this rank's GPU. Ends by end() or
  /// abort() alone.
  Group(const std::string& name, int rank, int size, int device, bool blocking);
  Group(const Group&) = delete;

  /// Of the call under way or, once something has failed, of all to come. From any thread.
  ncclResult_t state() const { return state_; }
  std::string last_error() const;
  /// Success where another call may be made now.
  ncclResult_t ready();
  std::size_t ranks() const { return static_cast<std::size_t>(size_); }
  /// As a test wants it.
  bool refuses_captures() const { return fault_.kind == Fault::Kind::capture; }
  /// What a call returns: `taken`, or, where calls block, what comes of it.
  ncclResult_t answer(ncclResult_t taken) const;
  /// As a test wants it: does not return before an abort. Else false.
  bool blocks_for_ever();
  /// Notes a call, which `run` makes.
  ncclResult_t start(std::function<void()> run);
  /// The first failure stays. From any thread.
  void fail(ncclResult_t result, const std::string& why);
  /// To be waited for by state(): all that was begun is over on all ranks, and no graph holds a
  /// call.
  ncclResult_t finalize();
  void end();
  /// Collectives end at once; returns when no graph holds one. From any thread.
  void abort();
  bool is_aborted() const { return aborted_; }

  std::set<const void*> registered;  ///< memory

 private:
  friend class Collective;  // which is this rank's turn at the shared memory

  RankState& me() const { return memory_.rank(rank_); }
  void work();
  void join(const std::string& gpu);
  void check_gpus();
  bool wait_for_ranks(const std::function<bool(const RankState&)>& is_there);
  void look_for_ends();

  const int rank_, size_, device_;
  const bool blocking_;
  std::atomic<std::uint64_t> calls_made_ = 0;
  const Fault fault_;
  const JobMemory memory_;
  std::atomic<ncclResult_t> state_ = ncclInProgress;
  std::atomic<bool> aborted_ = false;
  std::atomic<int> live_ = 0;  // collectives that are queued or in a graph
  const Collective* current_ = nullptr;
  std::uint64_t begun_ = 0;

  mutable std::mutex mutex_;
  std::string last_error_;
  std::deque<std::function<void()>> calls_;
  std::condition_variable called_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace ringtrain::host_nccl
