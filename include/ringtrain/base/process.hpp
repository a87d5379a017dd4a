#pragma once
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

namespace ringtrain {

/// What Linux's file `stat` says of a process or a thread.
struct ProcessStatus {
  std::string name;  ///< the first 15 characters
  char state = 0;    ///< T, t: stopped, by a signal or a debugger; Z, X: dead
  pid_t parent = 0;
  unsigned flags = 0;         ///< the kernel's PF_...
  std::uint64_t started = 0;  ///< in clock ticks since the kernel's start

  bool dead() const { return state == 'Z' || state == 'X'; }
  bool stopped() const { return state == 'T' || state == 't'; }
};

/// Reads `folder`/stat, as of /proc/7 or /proc/7/task/8. Nothing where that is gone, or cannot be
/// read, of which errno is then the cause. Never waits.
std::optional<ProcessStatus> process_status(const std::string& folder);
std::optional<ProcessStatus> process_status(pid_t process);

/// The number of this process's PID namespace: process numbers of others mean nothing here. 0 where
/// /proc does not tell.
std::uint64_t pid_namespace();

/// What the kernel calls this start of the machine; containers of one machine share it.
std::string boot_id();

/// "stopped (state T of /proc/7/stat): kill -CONT 7 lets it go on"; likewise of one that is dead.
/// Empty where it is neither.
std::string why_idle(pid_t process);

}  // namespace ringtrain
