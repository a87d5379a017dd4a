#include "train/publish.hpp"

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace ringtrain {
namespace {

std::string temporary_of(const std::string& path) { return path + ".part"; }

}  // namespace

std::string why_unwritable(const std::string& path) {
  std::error_code failure;
  const auto type = std::filesystem::status(path, failure).type();
  if (type != std::filesystem::file_type::not_found && type != std::filesystem::file_type::regular)
    return "it is there and no regular file";
  if (!std::ofstream(temporary_of(path), std::ios::app))
    return std::generic_category().message(errno);
  std::remove(temporary_of(path).c_str());
  return "";
}

std::string publish(const std::string& path, const std::function<void(std::ostream&)>& write) {
  const std::string temporary = temporary_of(path);
  errno = 0;
  std::ofstream file(temporary, std::ios::trunc);
  write(file);
  file.close();
  if (file && std::rename(temporary.c_str(), path.c_str()) == 0) return "";
  std::string reason = errno != 0 ? std::generic_category().message(errno) : "cut short";
  std::remove(temporary.c_str());
  return reason;
}

}  // namespace ringtrain
