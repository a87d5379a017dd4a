#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "ringtrain/base/error.hpp"
#include "ringtrain/config/options.hpp"

namespace ringtrain::monitor {

/// Writes `text` to a new file of this rank in the folder for temporary files ($TMPDIR, else /tmp),
/// readable by this user alone: what a rank has to say must not depend on the way to mpirun.
/// Returns a sentence for the message: where it is, or why there is none. Waits for a second at
/// most, so that a dead disk does not keep the message back.
std::string write_fault_report(int rank, std::string_view text);

/// How to go on after this job: what its last durable checkpoint is, as far as this rank knows
/// (`saved_step` 0: it does not), and where it is now (`context`, which is checked), and the
/// command. A few lines.
std::string restart_hint(const config::Options& options, std::uint64_t saved_step,
                         FaultContext& context);

}  // namespace ringtrain::monitor
