#include "ringtrain/base/process.hpp"

#include <fmt/core.h>
#include <sys/stat.h>

#include <fstream>
#include <iterator>
#include <sstream>

namespace ringtrain {

// "pid (name) state parent ...": the name may hold anything, so look for the last parenthesis.
std::optional<ProcessStatus> process_status(pid_t process) {
  constexpr int between = 17;  // fields from the parent to the start, exclusive
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const std::size_t open = text.find('('), close = text.rfind(')');
  if (open == text.npos || close == text.npos) return std::nullopt;
  ProcessStatus status{.name = text.substr(open + 1, close - open - 1)};
  std::istringstream rest(text.substr(close + 1));
  rest >> status.state >> status.parent;
  std::string field;
  for (int i = 0; i < between; ++i) rest >> field;
  return rest >> status.started ? std::optional(status) : std::nullopt;
}

std::uint64_t pid_namespace() {
  struct stat status {};
  return ::stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

std::string why_idle(pid_t process) {
  const auto status = process_status(process);
  if (!status || status->state == 'Z' || status->state == 'X') return "dead";
  if (status->state != 'T' && status->state != 't') return "";
  return fmt::format("stopped (state {} of /proc/{}/stat): kill -CONT {} lets it go on",
                     status->state, process, process);
}

}  // namespace ringtrain
