#include "ringtrain/host/launcher.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>

#include "ringtrain/base/file.hpp"
#include "ringtrain/base/process.hpp"
#include "ringtrain/base/program.hpp"

namespace ringtrain::host {
namespace {

// As /proc names them: 15 characters.
constexpr std::array<std::string_view, 11> launcher_programs = {
    "mpirun",  "mpirun.openmpi", "mpiexec",         "mpiexec.openmpi", "orterun",        "orted",
    "prterun", "prted",          "hydra_pmi_proxy", "mpiexec.hydra",   "hydra_bstrap_pr"};

// Of a file of /proc/PID that holds words with a zero byte behind each; empty where it cannot be
// read.
std::vector<std::string> words_of(pid_t process, const char* file) {
  std::ifstream in("/proc/" + std::to_string(process) + "/" + file);
  std::vector<std::string> words;
  for (std::string word; std::getline(in, word, '\0');) words.push_back(word);
  return words;
}

bool binds(std::string_view policy) { return !policy.empty() && !policy.starts_with("none"); }

// One option with its value, or one parameter of mpirun's.
bool asks_for_binding(std::string_view name, std::string_view value) {
  if (name == "bind-to" || name == "hwloc_default_binding_policy") return binds(value);
  if (name == "map-by") return value.find("PE=") != value.npos || value.find("pe=") != value.npos;
  return name == "cpu-set" || name == "cpu-list" || name == "rankfile" || name == "rf" ||
         name == "hwloc_default_cpu_list";
}

}  // namespace

bool asks_for_binding(std::span<const std::string> words) {
  constexpr std::string_view prefix = "PRTE_MCA_";
  const auto word = [&](std::size_t i) {
    return i < words.size() ? std::string_view(words[i]) : std::string_view();
  };
  for (std::size_t i = 0; i < words.size(); ++i) {
    std::string_view name = word(i), value = word(i + 1);
    const bool parameter = name.starts_with(prefix);
    if (!parameter && !name.starts_with('-')) continue;
    name.remove_prefix(parameter ? prefix.size()
                                 : std::min(name.find_first_not_of('-'), name.size()));
    if (const std::size_t equals = name.find('='); equals != name.npos) {
      value = name.substr(equals + 1);
      name = name.substr(0, equals);
    } else if (name == "mca" || name == "prtemca") {
      name = value;
      value = word(i + 2);
    }
    if (asks_for_binding(name, value)) return true;
  }
  return false;
}

bool asked_for_binding(pid_t launcher) {
  return asks_for_binding(words_of(launcher, "cmdline")) ||
         asks_for_binding(words_of(launcher, "environ"));
}

std::optional<pid_t> launcher_process() {
  for (pid_t id = ::getppid(); id > 1;) {
    const auto process = process_status(id);
    if (!process) break;
    if (std::ranges::find(launcher_programs, process->name) != launcher_programs.end()) return id;
    id = process->parent;
  }
  return std::nullopt;
}

// A daemon's command is not the job's.
std::vector<std::string> job_command() {
  const auto launcher = launcher_process();
  if (!launcher) return own_command();
  const auto process = process_status(*launcher);
  const std::string name = process ? process->name : "";
  if (!name.starts_with("mpi") && !name.starts_with("orterun") && !name.starts_with("prterun"))
    return own_command();
  std::vector<std::string> words = words_of(*launcher, "cmdline");
  return words.empty() ? own_command() : words;
}

namespace {

// Whether it has ended; only what is safe after fork() in a program with threads.
bool ends_within(int pid_file, int milliseconds) {
  pollfd one{pid_file, POLLIN, 0};
  while (true) {
    const int ready = ::poll(&one, 1, milliseconds);
    if (ready >= 0 || errno != EINTR) return ready != 0;
  }
}

}  // namespace

FileDescriptor open_launcher() {
  const auto launcher = launcher_process();
  return FileDescriptor(launcher ? static_cast<int>(::syscall(SYS_pidfd_open, *launcher, 0)) : -1);
}

// The child keeps nothing open: mpirun waits until all have closed its pipes. It has a session of
// its own, as daemons end the process groups of ranks.
void end_launcher(pid_t launcher, std::chrono::milliseconds after) {
  const FileDescriptor file(static_cast<int>(::syscall(SYS_pidfd_open, launcher, 0)));
  if (file.get() < 0) return;
  if (::_Fork() != 0) return;  // without fork()'s handlers, which may wait for a stuck thread
  ::setsid();
  constexpr int most_open = 4096;
  const int kept = ::dup2(file.get(), 0);
  if (::syscall(SYS_close_range, 1, ~0U, 0) != 0)  // Linux before 5.9
    for (int open = 1; open < most_open; ++open) ::close(open);
  if (!ends_within(kept, static_cast<int>(after.count())))
    ::syscall(SYS_pidfd_send_signal, kept, SIGKILL, nullptr, 0);
  ::_exit(0);
}

std::chrono::seconds time_to_kill_ranks() {
  constexpr int usual = 1, most = 60;
  for (const char* name :
       {"OMPI_MCA_odls_base_sigkill_timeout", "PRTE_MCA_odls_base_sigkill_timeout"})
    if (const char* const text = std::getenv(name))
      return std::chrono::seconds(std::clamp(std::atoi(text), usual, most));
  return std::chrono::seconds(usual);
}

std::vector<int> affinity(pid_t process) {
  cpu_set_t set;
  std::vector<int> ids;
  if (::sched_getaffinity(process, sizeof set, &set) != 0) return ids;
  for (int id = 0; id < CPU_SETSIZE; ++id)
    if (CPU_ISSET(id, &set)) ids.push_back(id);
  return ids;
}

namespace {

std::string path_of(const std::string& process, int descriptor) {
  char target[256];
  const std::string link = "/proc/" + process + "/fd/" + std::to_string(descriptor);
  const ssize_t size = ::readlink(link.c_str(), target, sizeof target);
  return size < 0 ? "" : std::string(target, static_cast<std::size_t>(size));
}

bool is_terminal(const std::string& path) {
  return path.starts_with("/dev/pts/") || path.starts_with("/dev/tty") || path == "/dev/console";
}

std::size_t columns_of(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC));
  winsize size{};
  if (file.get() < 0 || ::ioctl(file.get(), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

}  // namespace

Terminal find_terminal() {
  const auto launcher = launcher_process();
  const std::string process = launcher ? std::to_string(*launcher) : "self";
  const std::string out = path_of(process, STDOUT_FILENO), err = path_of(process, STDERR_FILENO);
  const char* kind = std::getenv("TERM");
  const bool dumb = kind != nullptr && std::string(kind) == "dumb";
  // mpirun gives ranks a terminal for standard output, whatever its own is. Where that is gone, a
  // script between the two redirects it, and nothing but lines belongs there.
  if (launcher && ::isatty(STDOUT_FILENO) == 0) return {};
  Terminal terminal{.out = is_terminal(out), .err = is_terminal(err) && !dumb};
  const char* const no_colour = std::getenv("NO_COLOR");
  terminal.colours = terminal.err && (no_colour == nullptr || *no_colour == 0);
  if (terminal.err) terminal.columns = columns_of(err);
  return terminal;
}

}  // namespace ringtrain::host
