#pragma once
#include <sys/types.h>

#include <cstdint>

#include "ringtrain/monitor/channel/messages.hpp"

namespace ringtrain::monitor {

/// What the kernel tells of a process of this host.
enum class ProcessState : std::uint8_t {
  unknown,
  stopped,  ///< all of it, by a signal or a debugger
  frozen,   ///< by its control group
  runs,     ///< some of it has a CPU, wants one, or waits for a disk
  waits,    ///< for something else
  gone,     ///< it has ended, or is about to and will do nothing more
};

/// Takes some 20 us a thread. Never waits.
ProcessState state_of(pid_t process);

/// Looks at a rank of this host; unknown where it is in another container. Another process that has
/// got its id since is not it.
ProcessState state_of(const ProcessName& process);

/// This one.
ProcessName own_process();

}  // namespace ringtrain::monitor
