#include "ringtrain/base/permissions.hpp"

#include <fmt/core.h>
#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <vector>

namespace ringtrain {
namespace {

// To ask umask(2) is to change it, for all threads.
mode_t mode_of_new_file() {
  std::ifstream status("/proc/self/status");
  mode_t mask = 0077;
  for (std::string word; status >> word;)
    if (word == "Umask:" && status >> std::oct >> mask) break;
  return 0666 & ~mask;
}

std::string user_name(uid_t user) {
  passwd entry{};
  passwd* found = nullptr;
  std::array<char, 4096> text{};
  ::getpwuid_r(user, &entry, text.data(), text.size(), &found);
  return found != nullptr ? found->pw_name : fmt::format("user {}", user);
}

std::string group_name(gid_t group) {
  ::group entry{};
  ::group* found = nullptr;
  std::array<char, 4096> text{};
  ::getgrgid_r(group, &entry, text.data(), text.size(), &found);
  return found != nullptr ? found->gr_name : std::to_string(group);
}

bool is_of_group(gid_t group) {
  std::vector<gid_t> groups(static_cast<std::size_t>(std::max(0, ::getgroups(0, nullptr))));
  const int count = ::getgroups(static_cast<int>(groups.size()), groups.data());
  groups.resize(static_cast<std::size_t>(std::max(0, count)));
  return group == ::getegid() || std::ranges::find(groups, group) != groups.end();
}

// As the kernel picks the three bits of a mode.
char class_of_this_process(const struct stat& file) {
  if (file.st_uid == ::geteuid()) return 'u';
  return is_of_group(file.st_gid) ? 'g' : 'o';
}

}  // namespace

void follow_umask(int file) {
  [[maybe_unused]] const int changed = ::fchmod(file, mode_of_new_file());
}

std::string why_denied(int directory, const std::string& name, Access wanted) {
  struct stat file {};
  const std::string self = user_name(::geteuid());
  if (::fstatat(directory, name.c_str(), &file, 0) != 0)
    return fmt::format("{} may not enter a folder above it: chmod +x that", self);
  const char who = class_of_this_process(file);
  const char right = wanted == Access::read ? 'r' : 'w';
  const unsigned shift = who == 'u' ? 6 : who == 'g' ? 3 : 0;
  const mode_t bit = (right == 'r' ? 4U : 2U) << shift;
  const std::string whose =
      fmt::format("it belongs to {}, group {}, with mode {:04o}, and this process is {}",
                  user_name(file.st_uid), group_name(file.st_gid), file.st_mode & 07777U, self);
  if ((file.st_mode & bit) != 0)
    return whose + "; not its mode but another rule of the system forbids it";
  return fmt::format("{}: chmod {}+{} it, as its owner", whose, who, right);
}

}  // namespace ringtrain
