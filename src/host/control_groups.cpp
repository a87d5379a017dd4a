#include "ringtrain/host/control_groups.hpp"

#include <algorithm>
#include <fstream>
#include <limits>

namespace ringtrain::host {
namespace {

constexpr auto no_limit = std::numeric_limits<std::uint64_t>::max();

// From `path` up to `root` itself.
void add_along(std::vector<std::string>& folders, const std::string& root, std::string path) {
  folders.push_back(root);
  for (; path.size() > 1; path.resize(path.rfind('/'))) folders.push_back(root + path);
}

// The number behind `key` in a file of lines "key number" or "key: number".
std::uint64_t number_behind(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  std::uint64_t number = 0;
  for (std::string word; file >> word;)
    if (word == key && file >> number) return number;
  return 0;
}

std::uint64_t number_in_file(const std::string& path, std::uint64_t otherwise) {
  std::uint64_t number = 0;
  return std::ifstream(path) >> number ? number : otherwise;
}

// What a control group of version 2 or 1 leaves; its page cache can go.
std::uint64_t left_in(const std::string& group) {
  const auto left = [&](const char* limit, const char* use, const char* cache) -> std::uint64_t {
    const std::uint64_t most = number_in_file(group + limit, no_limit);
    if (most == no_limit) return no_limit;
    const std::uint64_t used = number_in_file(group + use, 0);
    const std::uint64_t kept = used - std::min(used, number_behind(group + "/memory.stat", cache));
    return most - std::min(most, kept);
  };
  return std::min(left("/memory.max", "/memory.current", "inactive_file"),
                  left("/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file"));
}

}  // namespace

std::vector<std::string> control_groups(const std::string& controller) {
  const std::string root = "/sys/fs/cgroup";
  std::vector<std::string> folders;
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "4:memory:/path"
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == line.npos || line.find('/', second) != second + 1) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) add_along(folders, root, path);
    if (controllers.find(controller) != controllers.npos)
      add_along(folders, root + "/" + controller, path);
  }
  return folders;
}

std::uint64_t available_memory() {
  std::uint64_t least = number_behind("/proc/meminfo", "MemAvailable:") * 1024;
  for (const std::string& group : control_groups("memory")) least = std::min(least, left_in(group));
  return least;
}

}  // namespace ringtrain::host
