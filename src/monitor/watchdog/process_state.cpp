#include "ringtrain/monitor/watchdog/process_state.hpp"

#include <dirent.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "ringtrain/base/process.hpp"
#include "ringtrain/base/unique_handle.hpp"
#include "ringtrain/host/control_groups.hpp"

namespace ringtrain::monitor {
namespace {

// Its connections end before it is a zombie.
bool has_ended(const ProcessStatus& thread) {
  constexpr unsigned exiting = 4;  // PF_EXITING
  return thread.dead() || (thread.flags & exiting) != 0;
}

}  // namespace

ProcessState state_of(pid_t process) {
  const std::string tasks = "/proc/" + std::to_string(process) + "/task";
  const UniqueHandle<DIR*, ::closedir> threads(::opendir(tasks.c_str()));
  if (threads.get() == nullptr) return errno == ENOENT ? ProcessState::gone : ProcessState::unknown;
  int alive = 0, stopped = 0;
  bool runs = false;
  while (const dirent* entry = ::readdir(threads.get())) {
    if (entry->d_name[0] == '.') continue;
    errno = 0;
    const auto thread = process_status(tasks + "/" + entry->d_name);
    const bool gone = errno == 0 || errno == ENOENT || errno == ESRCH;
    if (!thread && !gone) return ProcessState::unknown;  // descriptors may lack
    if (!thread || has_ended(*thread)) continue;
    ++alive;
    runs |= thread->state == 'R' || thread->state == 'D';
    stopped += thread->stopped();
  }
  if (alive == 0) return ProcessState::gone;
  // A frozen one seems to wait, for a disk or something else.
  if (host::is_frozen(process)) return ProcessState::frozen;
  if (runs) return ProcessState::runs;
  return stopped == alive ? ProcessState::stopped : ProcessState::waits;
}

ProcessState state_of(const ProcessName& process) {
  if (process.id == 0 || process.of != own_process().of) return ProcessState::unknown;
  const auto status = process_status(static_cast<pid_t>(process.id));
  if (status && status->started != process.started) return ProcessState::gone;
  return state_of(static_cast<pid_t>(process.id));
}

ProcessName own_process() {
  const std::uint64_t namespace_id = pid_namespace();
  const auto status = process_status("/proc/self");
  if (namespace_id == 0 || !status) return {};
  return {namespace_id, ::getpid(), status->started};
}

}  // namespace ringtrain::monitor
