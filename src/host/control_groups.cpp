#include "ringtrain/host/control_groups.hpp"

#include <fstream>

namespace ringtrain::host {
namespace {

// From `path` up to `root` itself.
void add_along(std::vector<std::string>& folders, const std::string& root, std::string path) {
  folders.push_back(root);
  for (; path.size() > 1; path.resize(path.rfind('/'))) folders.push_back(root + path);
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

}  // namespace ringtrain::host
