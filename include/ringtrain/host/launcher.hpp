#pragma once
#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ringtrain/base/file.hpp"

namespace ringtrain::host {

/// The nearest ancestor that starts ranks on this host (mpirun or its daemon), also through wrapper
/// scripts. It is not bound to a core and may have the terminal that ranks do not have.
std::optional<pid_t> launcher_process();

/// A descriptor of that process, which poll() finds readable once it has ended, also as a zombie.
/// -1 where there is none, or on a Linux older than 5.3.
FileDescriptor open_launcher();

/// Leaves a process behind that ends `launcher` if it has not ended by itself `after` that time:
/// mpirun waits for minutes for the daemon of a host that is gone, and a daemon for its mpirun. By
/// SIGKILL: a SIGTERM then makes mpirun of Open MPI 4.1 crash. Does nothing on a Linux older than
/// 5.3 or where the launcher belongs to somebody else. Any thread.
void end_launcher(pid_t launcher, std::chrono::milliseconds after);

/// For how long this job's mpirun waits between SIGTERM and SIGKILL to a rank, as far as it tells
/// its ranks: odls_base_sigkill_timeout, one second where nobody changes it.
std::chrono::seconds time_to_kill_ranks();

/// A launcher's command line, or its environment as NAME=VALUE, asks for ranks bound to processors.
/// Open MPI 4 tells ranks so in their environment; Open MPI 5 does not.
bool asks_for_binding(std::span<const std::string> words);

/// Whether that is so of this process.
bool asked_for_binding(pid_t launcher);

/// The words of the command that started this job, from mpirun on, where that runs on this host;
/// else those of this rank.
std::vector<std::string> job_command();

/// Becomes the mpirun that starts `ranks` ranks of `command`, a program and its words, on this
/// host: with what root and more ranks than cores need, and unbound, as each rank deals its
/// processors out itself. Signals and the exit code are mpirun's from then on. Before any thread,
/// and before MPI. Returns only by an Error (usage): there is no mpirun beside the program or in
/// PATH.
[[noreturn]] void become_mpirun(int ranks, std::span<const std::string> command);
/// What it becomes on a host of so many cores.
std::vector<std::string> mpirun_command(const std::string& mpirun, int ranks, std::size_t cores,
                                        std::span<const std::string> command);

/// Ids of the processors that a process (0: this one) may run on; empty where that is not known.
std::vector<int> affinity(pid_t process);

/// Where what this process prints is seen. Under mpirun a rank writes into pipes; then it is the
/// launcher's own standard output and error that count.
struct Terminal {
  bool out = false, err = false;  ///< whether each is a terminal
  bool colours = false;           ///< on err: the user has not said NO_COLOR (no-color.org)
  std::size_t columns = 80;
};

Terminal find_terminal();

}  // namespace ringtrain::host
