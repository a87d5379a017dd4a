#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "ringtrain/monitor/rank_stats.hpp"

namespace ringtrain::monitor {

struct SlowdownCause {
  std::string text;
  /// A link between hosts may be why: ranks on several hosts mostly wait for each other.
  bool links = false;
  /// Something else became worse with it, or a host's link is busy. That a thread had no CPU does
  /// not say who took it.
  bool found = false;
};

/// Why steps take longer in `since` than in `before`: which phase grew, on which ranks, what else
/// became worse there, and what to do about it. "forward grew from 8.2 to 21.0 ms a step on rank 1
/// (b); with it moved, on b: held up by its CPU quota 0 -> 48 % of the time; raise ...". Where no
/// rank's own work grew, or less than the wait for a host whose link is busy, ranks wait for each
/// other: then what moved on their hosts is named. Where nothing moved, says what was looked at.
SlowdownCause explain_slowdown(const AccountsSpan& before, const AccountsSpan& since,
                               const std::vector<std::string>& hosts);

/// Whether some rank has told enough of itself in both.
bool can_explain(const AccountsSpan& before, const AccountsSpan& since);

/// The same of a run that is slower than is expected. Of what is expected no more is known than
/// what a step of rank 0 was made of, if that: all 0. So the ranks are compared with one another,
/// and rank 0's step with that.
SlowdownCause explain_slower_than_expected(const AccountsSpan& now,
                                           const metrics::PhaseSeconds& expected,
                                           const std::vector<std::string>& hosts);

/// Zeros where it is not known.
metrics::PhaseSeconds mean_step_of(std::size_t rank, const AccountsSpan& span);

}  // namespace ringtrain::monitor
