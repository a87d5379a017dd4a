#pragma once
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

namespace ringtrain {

/// What /proc/PID/stat says of a process.
struct ProcessStatus {
  std::string name;  ///< the first 15 characters
  char state = 0;    ///< T, t: stopped, by a signal or a debugger; Z, X: dead
  pid_t parent = 0;
  std::uint64_t started = 0;  ///< in clock ticks since the kernel's start
};

/// Nothing where there is no such process, or it cannot be seen. Never waits.
std::optional<ProcessStatus> process_status(pid_t process);

/// The number of this process's PID namespace: process numbers of others mean nothing here. 0 where
/// /proc does not tell.
std::uint64_t pid_namespace();

/// "stopped (state T of /proc/7/stat): kill -CONT 7 lets it go on"; likewise of one that is dead.
/// Empty where it is neither.
std::string why_idle(pid_t process);

}  // namespace ringtrain
