#include "train/fault_report.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "ringtrain/base/file_descriptor.hpp"

namespace ringtrain {

std::string write_fault_report(int rank, std::string_view text) {
  std::error_code failure;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(failure);
  const std::string path =
      (folder / fmt::format("train-report-rank{}-{}.txt", rank, ::getpid())).string();
  const FileDescriptor file(::open(
      path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
  const bool written = file.get() >= 0 && ::write(file.get(), text.data(), text.size()) ==
                                              static_cast<ssize_t>(text.size());
  if (written) return "report: " + path;
  return fmt::format("no report in {}: {}", path, std::generic_category().message(errno));
}

}  // namespace ringtrain
