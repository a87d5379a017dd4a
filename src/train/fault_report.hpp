#pragma once
#include <string>
#include <string_view>

namespace ringtrain {

/// Writes `text` to a new file of this rank in the folder for temporary files ($TMPDIR, else /tmp),
/// readable by this user alone: what a rank has to say must not depend on the way to mpirun.
/// Returns a sentence for the message: where it is, or why there is none.
std::string write_fault_report(int rank, std::string_view text);

}  // namespace ringtrain
