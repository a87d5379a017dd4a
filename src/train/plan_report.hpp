#pragma once
#include <string>

#include "ringtrain/train/options.hpp"

namespace ringtrain {

/// What `--plan` prints about one rank's training step: memory and, for a GPU, bytes moved an
/// image, fusions, the most that memory and arithmetic allow, and the step time they predict. Needs
/// no data, no other rank and no GPU. Throws Error (usage) when the build cannot plan for the
/// device.
std::string plan_report(const Options& options);

}  // namespace ringtrain
