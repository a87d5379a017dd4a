#pragma once
#include <sys/types.h>

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ringtrain {

/// The nearest ancestor that starts ranks on this host (mpirun or its daemon), also through wrapper
/// scripts. It is not bound to a core and may have the terminal that ranks do not have.
std::optional<pid_t> launcher_process();

/// A launcher's command line, or its environment as NAME=VALUE, asks for ranks bound to processors.
/// Open MPI 4 tells ranks so in their environment; Open MPI 5 does not.
bool asks_for_binding(std::span<const std::string> words);

/// Whether that is so of this process.
bool asked_for_binding(pid_t launcher);

/// Ids of the processors that a process (0: this one) may run on; empty where that is not known.
std::vector<int> affinity(pid_t process);

}  // namespace ringtrain
