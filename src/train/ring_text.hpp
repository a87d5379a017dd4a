#pragma once
#include <string>
#include <vector>

#include "ringtrain/allreduce/ring_choice.hpp"

namespace ringtrain {

/// For the user, line by line: what was measured and chosen; `details`: with a table of the trials.
/// Of two hosts at least.
std::vector<std::string> told(const RingChoice& choice, bool details);

/// The blocks that a ring sends, in KiB: "31", or "8 to 31" where that depends on the sum.
std::string blocks_text(const RingTuning& tuning);

}  // namespace ringtrain
