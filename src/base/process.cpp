#include "ringtrain/base/process.hpp"

#include <fmt/core.h>
#include <sys/stat.h>

#include <fstream>
#include <iterator>
#include <sstream>

namespace ringtrain {

// "pid (name) state parent ...": the name may hold anything, so look for the last parenthesis.
std::optional<ProcessStatus> process_status(const std::string& folder) {
  constexpr int to_flags = 4, to_start = 12;  // fields from the parent on, and from the flags on
  std::ifstream file(folder + "/stat");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const std::size_t open = text.find('('), close = text.rfind(')');
  if (open == text.npos || close == text.npos) return std::nullopt;
  ProcessStatus status{.name = text.substr(open + 1, close - open - 1)};
  std::istringstream rest(text.substr(close + 1));
  rest >> status.state >> status.parent;
  std::string other;
  for (int i = 0; i < to_flags; ++i) rest >> other;
  rest >> status.flags;
  for (int i = 0; i < to_start; ++i) rest >> other;
  return rest >> status.started ? std::optional(status) : std::nullopt;
}

std::optional<ProcessStatus> process_status(pid_t process) {
  return process_status(fmt::format("/proc/{}", process));
}

std::uint64_t pid_namespace() {
  struct stat status {};
  return ::stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

std::string boot_id() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return boot;
}

std::string why_idle(pid_t process) {
  const auto status = process_status(process);
  if (!status || status->dead()) return "dead";
  if (!status->stopped()) return "";
  return fmt::format("stopped (state {} of /proc/{}/stat): kill -CONT {} lets it go on",
                     status->state, process, process);
}

}  // namespace ringtrain
