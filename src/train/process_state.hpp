#pragma once
#include <sys/types.h>

#include <cstdint>

namespace ringtrain {

/// What the kernel tells of a process of this host.
enum class ProcessState : std::uint8_t {
  unknown,
  stopped,  ///< all of it, by a signal or a debugger
  runs,     ///< some of it has a CPU, wants one, or waits for a disk
  waits,    ///< for something else
};

/// Takes some 20 us a thread. Never waits.
ProcessState state_of(pid_t process);

/// The namespace that process ids of this process are of: a number that is another in containers of
/// this host; 0: not known.
std::uint64_t process_namespace();

}  // namespace ringtrain
