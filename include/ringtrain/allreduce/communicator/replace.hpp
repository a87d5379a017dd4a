#pragma once
#include <functional>

#include "ringtrain/compute/view.hpp"

namespace ringtrain {

/// Replaces sums by what is made of them, in place, on the one rank that completes them, before the
/// other ranks get them: so a rank that updates its part of the parameters passes new parameters on
/// instead of gradients. On the thread that sums,
/// of which there are CommunicatorOptions::at_once, so perhaps on several at once, each with other
/// sums; throws what ends the sum.
using Replace = std::function<void(View complete)>;

}  // namespace ringtrain
