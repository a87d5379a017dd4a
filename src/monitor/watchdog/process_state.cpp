#include "ringtrain/monitor/watchdog/process_state.hpp"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <string>

#include "ringtrain/base/unique_handle.hpp"
#include "ringtrain/host/control_groups.hpp"

namespace ringtrain::monitor {
namespace {

// "id (name) state ...": the name may hold anything, so look for the last parenthesis.
char state_in(const std::string& stat_file) {
  std::ifstream file(stat_file);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const std::size_t close = text.rfind(") ");
  return close == text.npos || close + 2 >= text.size() ? '?' : text[close + 2];
}

}  // namespace

ProcessState state_of(pid_t process) {
  const std::string tasks = "/proc/" + std::to_string(process) + "/task";
  const UniqueHandle<DIR*, ::closedir> threads(::opendir(tasks.c_str()));
  if (threads.get() == nullptr) return ProcessState::unknown;
  // Before its threads: a frozen one seems to wait, for a disk or something else.
  if (host::is_frozen(process)) return ProcessState::frozen;
  int seen = 0, stopped = 0;
  while (const dirent* entry = ::readdir(threads.get())) {
    if (entry->d_name[0] == '.') continue;
    const char state = state_in(tasks + "/" + entry->d_name + "/stat");
    if (state == 'R' || state == 'D') return ProcessState::runs;
    seen += state != '?';
    stopped += state == 'T' || state == 't';
  }
  if (seen == 0) return ProcessState::unknown;
  return stopped == seen ? ProcessState::stopped : ProcessState::waits;
}

ProcessState state_of(const ProcessName& process) {
  if (process.id == 0 || process.of != own_process().of) return ProcessState::unknown;
  return state_of(static_cast<pid_t>(process.id));
}

ProcessName own_process() {
  struct stat status {};
  if (::stat("/proc/self/ns/pid", &status) != 0) return {};
  return {status.st_ino, ::getpid()};
}

}  // namespace ringtrain::monitor
