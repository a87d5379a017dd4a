#pragma once
// Room `monitor/watchdog`: ends a job in which a rank is gone, silent or stuck. CoordinatorWatch on
// rank 0 hears from the WorkerWatch of each other rank once a second; `liveness` tells a process
// that stands still from one that is gone; `fault_report` writes the table of all ranks.
//
// Threads: one of its own on every rank, which never touches MPI.
// Collective: the constructor of Watchdog.
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "ringtrain/monitor/watchdog/watch.hpp"

namespace ringtrain::monitor {

/// Ends a job in which a rank is gone, silent or stuck: a thread on every rank tells rank 0 once a
/// second where its main thread is, over TCP connections of its own, with neither MPI nor NCCL in
/// them. Rank 0 answers; a rank that does not hear it for too long (--watchdog-silence) ends
/// itself. Whoever ends the job says why, rank 0 with a table of all ranks. Time in which the whole
/// job was stopped does not count.
class Watchdog {
 public:
  /// What is passed outlives it. Rank 0's options say whether anything is watched; ranks are to
  /// compare theirs later. Collective.
  Watchdog(const allreduce::MpiSession& session, const config::Options& options);
  /// Says goodbye, so that this rank's end is no failure. Rank 0 watches the others until they have
  /// left, too; not so while an exception passes through.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;

  /// For the main thread to say where it is.
  Progress& progress() { return progress_; }
  /// On rank 0, what the user should know of the ranks since the last call.
  std::vector<std::string> take_notices() { return notices_.take(); }
  /// Samples the GPU with that PCI bus id, too; empty: there is none.
  void watch_gpu(const std::string& bus_id) {
    if (!bus_id.empty()) sampler_.watch(make_gpu_monitor(bus_id));
  }
  /// On rank 0, what the ranks last told of themselves, by rank: up to one and a half seconds ago.
  /// Where nothing is watched, of rank 0 alone. For the main thread.
  void accounts(std::vector<RankStats>& of_ranks);

 private:
  std::atomic<Watch::Until> until_{Watch::Until::told};
  Progress progress_;
  TextMailbox notices_;
  RankStatsMailbox accounts_;
  SystemSampler sampler_;  // the thread's, where there is one
  std::thread thread_;
};

}  // namespace ringtrain::monitor
