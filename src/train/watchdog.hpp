#pragma once
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "train/watch.hpp"

namespace ringtrain {

/// Ends a job in which a rank is gone, silent or stuck: a thread on every rank tells rank 0 once a
/// second where its main thread is, over TCP connections of its own, with neither MPI nor NCCL in
/// them. Rank 0 answers; a rank that does not hear it for 10 s ends itself. Whoever ends the job
/// says why, with a table of all ranks. Time in which the whole job was stopped does not count.
class Watchdog {
 public:
  /// What is passed outlives it. Rank 0's options say whether anything is watched; ranks are to
  /// compare theirs later. Collective.
  Watchdog(const MpiSession& session, const Options& options);
  /// Says goodbye, so that this rank's end is no failure. Rank 0 watches the others until they have
  /// left, too; not so while an exception passes through.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;

  /// For the main thread to say where it is.
  Progress& progress() { return progress_; }
  /// On rank 0, what the user should know of the ranks since the last call.
  std::vector<std::string> take_notices() { return notices_.take(); }

 private:
  std::atomic<Watch::Until> until_{Watch::Until::told};
  Progress progress_;
  Notices notices_;
  std::thread thread_;
};

}  // namespace ringtrain
