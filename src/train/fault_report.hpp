#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "ringtrain/train/options.hpp"

namespace ringtrain {

/// Writes `text` to a new file of this rank in the folder for temporary files ($TMPDIR, else /tmp),
/// readable by this user alone: what a rank has to say must not depend on the way to mpirun.
/// Returns a sentence for the message: where it is, or why there is none. Waits for a second at
/// most, so that a dead disk does not keep the message back.
std::string write_fault_report(int rank, std::string_view text);

/// What `work`, which throws nothing and owns what it uses, returns on a thread of its own; `late`
/// where that takes longer than `time`. For a process that is about to end.
std::string said_within(std::chrono::milliseconds time, std::function<std::string()> work,
                        const std::string& late);

/// How to go on after this job: what its last durable checkpoint is, as far as this rank knows
/// (`saved_step` 0: it does not), and the command. A few lines.
std::string way_on(const Options& options, std::uint64_t saved_step);

}  // namespace ringtrain
