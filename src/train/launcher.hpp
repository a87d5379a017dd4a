#pragma once
#include <sys/types.h>

#include <optional>
#include <vector>

namespace ringtrain {

/// The nearest ancestor that starts ranks on this host (mpirun or its daemon), also through wrapper
/// scripts. It is not bound to a core and may have the terminal that ranks do not have.
std::optional<pid_t> launcher_process();

/// Ids of the processors that a process (0: this one) may run on; empty where that is not known.
std::vector<int> affinity(pid_t process);

}  // namespace ringtrain
