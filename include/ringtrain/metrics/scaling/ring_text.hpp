#pragma once
#include <string>
#include <vector>

#include "ringtrain/allreduce/ring/tuning.hpp"
#include "ringtrain/config/options.hpp"

namespace ringtrain::metrics {

/// For the user, line by line: what was measured and chosen, or why nothing was; `details`: with a
/// table of the trials. Of two hosts at least.
std::vector<std::string> ring_lines(const allreduce::RingChoice& choice, const config::Tune& tune,
                                    bool details);

}  // namespace ringtrain::metrics
