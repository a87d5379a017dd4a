#pragma once
#include <chrono>
#include <string>

#include "ringtrain/allreduce/mpi/clock_sync.hpp"
#include "ringtrain/metrics/trace/timeline.hpp"

namespace ringtrain::metrics {

/// What became of a timeline, for the user.
struct SavedTimeline {
  bool there = true;
  std::string text = {};
};
/// Writes the spans of all ranks, by rank 0's clock, to `path` on rank 0. `before` and `after`:
/// this rank's offsets around them. Nobody may add any more. Collective.
SavedTimeline save_timeline(const Timeline& timeline, const std::string& path,
                            const allreduce::ClockOffset& before,
                            const allreduce::ClockOffset& after,
                            const allreduce::MpiSession& session);

/// The same of this rank alone, which is the first, before the job is given up: others may be
/// stuck, and so may the file system, which is waited for `patience`. What became of it, as a line.
/// `timeline` outlives the process's threads. From any thread.
std::string save_own_timeline(const Timeline& timeline, const std::string& path,
                              const std::string& host,
                              std::chrono::milliseconds patience = std::chrono::seconds(2));

}  // namespace ringtrain::metrics
