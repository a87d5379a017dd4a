#include "train/launcher.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <string_view>

namespace ringtrain {
namespace {

// As /proc names them: 15 characters.
constexpr std::array<std::string_view, 9> launcher_programs = {
    "mpirun", "mpiexec",         "orterun",       "orted",          "prterun",
    "prted",  "hydra_pmi_proxy", "mpiexec.hydra", "hydra_bstrap_pr"};

struct Process {
  std::string name;
  pid_t parent = 0;
};

// "pid (name) state parent ...": the name may hold anything, so look for the last parenthesis.
Process look_at(pid_t id) {
  std::ifstream file("/proc/" + std::to_string(id) + "/stat");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const std::size_t open = text.find('('), close = text.rfind(')');
  if (open == text.npos || close == text.npos) return {};
  Process process{text.substr(open + 1, close - open - 1)};
  std::istringstream rest(text.substr(close + 1));
  char state = 0;
  rest >> state >> process.parent;
  return process;
}

}  // namespace

std::optional<pid_t> launcher_process() {
  for (pid_t id = ::getppid(); id > 1;) {
    const Process process = look_at(id);
    if (std::ranges::find(launcher_programs, process.name) != launcher_programs.end()) return id;
    id = process.parent;
  }
  return std::nullopt;
}

std::vector<int> affinity(pid_t process) {
  cpu_set_t set;
  std::vector<int> ids;
  if (::sched_getaffinity(process, sizeof set, &set) != 0) return ids;
  for (int id = 0; id < CPU_SETSIZE; ++id)
    if (CPU_ISSET(id, &set)) ids.push_back(id);
  return ids;
}

}  // namespace ringtrain
