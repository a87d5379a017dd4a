#include "ringtrain/host/control_groups.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "host/kernel_numbers.hpp"

namespace ringtrain::host {

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

namespace {

// From `path` up to `root` itself.
void add_along(std::vector<std::string>& folders, const std::string& root, std::string path) {
  folders.push_back(root);
  for (; path.size() > 1; path.resize(path.rfind('/'))) folders.push_back(root + path);
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

// A group that a process is in; that of version 2 has no controllers here.
struct Membership {
  std::string controllers, path;
  bool of(const std::string& controller) const {
    return controllers.find(controller) != controllers.npos;
  }
};

std::vector<Membership> memberships(const std::string& path) {
  std::vector<Membership> groups;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {  // "4:memory:/path"
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == line.npos || line.find('/', second) != second + 1) continue;
    groups.push_back({line.substr(first + 1, second - first - 1), line.substr(second + 1)});
  }
  return groups;
}

// A place where a hierarchy of groups is mounted, from its group `root` downwards.
struct Mount {
  std::string type, options, root, point;
  std::string folder_of(const std::string& group) const {
    const bool below = root != "/" && group.starts_with(root);
    return point + (below ? group.substr(root.size()) : group);
  }
};

std::vector<Mount> group_mounts(const std::string& mount_table) {
  std::vector<Mount> mounts;
  std::ifstream file(mount_table);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);  // "31 24 0:27 ROOT POINT options... - TYPE source OPTIONS"
    Mount mount;
    std::string other;
    words >> other >> other >> other >> mount.root >> mount.point;
    while (words >> other && other != "-") {
    }
    words >> mount.type >> other >> mount.options;
    if (mount.type.starts_with("cgroup")) mounts.push_back(mount);
  }
  return mounts;
}

bool freezes(const Membership& group, const Mount& mount) {
  const std::string folder = mount.folder_of(group.path);
  if (group.controllers.empty())
    return mount.type == "cgroup2" && number_behind(folder + "/cgroup.events", "frozen") == 1;
  if (!group.of("freezer") || mount.options.find("freezer") == mount.options.npos) return false;
  std::string state;
  return std::ifstream(folder + "/freezer.state") >> state && state != "THAWED";
}

}  // namespace

std::vector<std::string> control_groups(const std::string& controller) {
  const std::string root = "/sys/fs/cgroup";
  std::vector<std::string> folders;
  for (const Membership& group : memberships("/proc/self/cgroup")) {
    if (group.controllers.empty()) add_along(folders, root, group.path);
    if (group.of(controller)) add_along(folders, root + "/" + controller, group.path);
  }
  return folders;
}

bool is_frozen(pid_t process, const std::string& proc) {
  const auto mounts = group_mounts(proc + "/self/mountinfo");
  const auto groups = memberships(proc + "/" + std::to_string(process) + "/cgroup");
  return std::ranges::any_of(groups, [&](const Membership& group) {
    return std::ranges::any_of(mounts, [&](const Mount& mount) { return freezes(group, mount); });
  });
}

std::uint64_t available_memory() {
  std::uint64_t least = number_behind("/proc/meminfo", "MemAvailable:") * 1024;
  for (const std::string& group : control_groups("memory")) least = std::min(least, left_in(group));
  return least;
}

}  // namespace ringtrain::host
