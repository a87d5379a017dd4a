#pragma once
#include <span>
#include <string>
#include <vector>

#include "ringtrain/monitor/rank_stats.hpp"

namespace ringtrain::monitor {

struct SlowdownCause {
  std::string text;
  /// A link between hosts may be why: ranks on several hosts mostly wait for each other.
  bool links = false;
};

/// Why steps take longer in `now` than in `usual`, two stretches of time, by rank: the ranks whose
/// own work explains most of it, in which phase, what else became worse on their host, and what to
/// do. Waiting for other ranks is never a cause; that they wait for a host that sends all the time,
/// or whose link loses data, is. Else: "cause unknown", with the three largest changes.
SlowdownCause explain_slowdown(std::span<const RankStats> usual, std::span<const RankStats> now,
                               const std::vector<std::string>& hosts);

/// Which phase of rank 0's step takes longer than it did in an earlier run, or else takes longest.
std::string explain_slower_run(const metrics::PhaseSeconds& step, const metrics::PhaseSeconds& then,
                               const std::string& host);

}  // namespace ringtrain::monitor
