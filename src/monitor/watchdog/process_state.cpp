#include "ringtrain/monitor/watchdog/process_state.hpp"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "ringtrain/base/unique_handle.hpp"
#include "ringtrain/host/control_groups.hpp"

namespace ringtrain::monitor {
namespace {

// Of a process or a thread. One that has no such file has ended.
struct Stat {
  bool known = true;
  char state = 'X';
  unsigned flags = 0;
  std::uint64_t started = 0;

  bool ended() const {
    constexpr unsigned exiting = 4;  // PF_EXITING: its connections end before it is a zombie
    return state == 'Z' || state == 'X' || (flags & exiting) != 0;
  }
};

// "id (name) state ...": the name may hold anything, so look for the last parenthesis.
Stat stat_in(const std::string& folder) {
  errno = 0;
  std::ifstream file(folder + "/stat");
  Stat stat;
  stat.known = file.is_open() || errno == ENOENT || errno == ESRCH;  // else descriptors may lack
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const std::size_t close = text.rfind(") ");
  if (close == text.npos) return stat;
  std::istringstream words(text.substr(close + 2));
  words >> stat.state;
  std::string other;
  for (int i = 0; i < 5; ++i) words >> other;
  words >> stat.flags;
  for (int i = 0; i < 12; ++i) words >> other;
  words >> stat.started;
  return stat;
}

std::string folder_of(std::int64_t process) { return "/proc/" + std::to_string(process); }

}  // namespace

ProcessState state_of(pid_t process) {
  const std::string tasks = folder_of(process) + "/task";
  const UniqueHandle<DIR*, ::closedir> threads(::opendir(tasks.c_str()));
  if (threads.get() == nullptr) return errno == ENOENT ? ProcessState::gone : ProcessState::unknown;
  int alive = 0, stopped = 0;
  bool runs = false;
  while (const dirent* entry = ::readdir(threads.get())) {
    if (entry->d_name[0] == '.') continue;
    const Stat thread = stat_in(tasks + "/" + entry->d_name);
    if (!thread.known) return ProcessState::unknown;
    if (thread.ended()) continue;
    ++alive;
    runs |= thread.state == 'R' || thread.state == 'D';
    stopped += thread.state == 'T' || thread.state == 't';
  }
  if (alive == 0) return ProcessState::gone;
  // A frozen one seems to wait, for a disk or something else.
  if (host::is_frozen(process)) return ProcessState::frozen;
  if (runs) return ProcessState::runs;
  return stopped == alive ? ProcessState::stopped : ProcessState::waits;
}

ProcessState state_of(const ProcessName& process) {
  if (process.id == 0 || process.of != own_process().of) return ProcessState::unknown;
  const std::uint64_t started = stat_in(folder_of(process.id)).started;
  if (started != 0 && started != process.started) return ProcessState::gone;
  return state_of(static_cast<pid_t>(process.id));
}

ProcessName own_process() {
  struct stat status {};
  if (::stat("/proc/self/ns/pid", &status) != 0) return {};
  return {status.st_ino, ::getpid(), stat_in("/proc/self").started};
}

}  // namespace ringtrain::monitor
