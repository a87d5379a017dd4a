#pragma once
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace ringtrain::host {

/// The folders of the control groups that limit this process's use of `controller` ("cpu",
/// "memory"), of version 2 and 1, its own and all around it. They need not exist.
std::vector<std::string> control_groups(const std::string& controller);

/// Whether a control group of version 2 or 1 that `process` is in, as `proc` has it, is frozen, or
/// about to be: `docker pause` and Slurm do so. False where that cannot be read. Never waits.
bool is_frozen(pid_t process, const std::string& proc = "/proc");

/// Bytes of memory that this host can still give, within this process's control groups: their page
/// cache counts as free.
std::uint64_t available_memory();

}  // namespace ringtrain::host
