#pragma once
#include <sys/types.h>

#include <optional>

namespace ringtrain {

/// The nearest ancestor that starts ranks on this host (mpirun or its daemon), also through wrapper
/// scripts. It is not bound to a core and may have the terminal that ranks do not have.
std::optional<pid_t> launcher_process();

}  // namespace ringtrain
