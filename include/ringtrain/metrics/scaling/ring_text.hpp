#pragma once
#include <string>
#include <vector>

#include "ringtrain/allreduce/ring/tuning.hpp"
#include "ringtrain/config/options.hpp"

namespace ringtrain::metrics {

/// For the user, line by line: what was measured and chosen, or why nothing was; `details`: with a
/// table of the trials. Of two hosts at least.
std::vector<std::string> told(const allreduce::RingChoice& choice, const config::Tune& tune,
                              bool details);

/// For the user, line by line: which of `tried` was `best` in `steps` steps; `report`: that it was
/// only measured, and a table.
std::vector<std::string> told_trials(const std::vector<allreduce::TriedPlan>& tried,
                                     std::size_t best, std::size_t steps, bool report);

std::string text_of(const allreduce::SumPlan& plan);

/// The blocks that a ring sends, in KiB: "31", or "8 to 31" where that depends on the sum.
std::string blocks_text(const allreduce::RingTuning& tuning);

}  // namespace ringtrain::metrics
