#include "train/fault_report.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <filesystem>
#include <system_error>

#include "ringtrain/base/file_descriptor.hpp"
#include "ringtrain/base/own_program.hpp"

namespace ringtrain {
namespace {

std::string checkpoint(const Options& options, std::uint64_t saved_step) {
  if (options.checkpoint_dir.empty())
    return "nothing was saved, as there is no --checkpoint-dir; to start anew";
  if (saved_step == 0)
    return fmt::format("to go on from the newest checkpoint in {}", options.checkpoint_dir);
  return fmt::format("the last durable checkpoint in {} is of step {}; to go on from it",
                     options.checkpoint_dir, saved_step);
}

}  // namespace

std::string write_fault_report(int rank, std::string_view text) {
  std::error_code failure;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(failure);
  const std::string path =
      (folder / fmt::format("train-report-rank{}-{}-{}.txt", rank, ::getpid(), std::time(nullptr)))
          .string();
  const FileDescriptor file(::open(
      path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
  const bool written = file.get() >= 0 && ::write(file.get(), text.data(), text.size()) ==
                                              static_cast<ssize_t>(text.size());
  if (written) return "report: " + path;
  return fmt::format("no report in {}: {}", path, std::generic_category().message(errno));
}

std::string way_on(const Options& options, std::uint64_t saved_step) {
  const bool resumes =
      options.checkpoint_dir.empty() || options.resume.from == Resume::From::newest;
  return fmt::format("{}, start all ranks again{}:\n  {}\n", checkpoint(options, saved_step),
                     resumes ? "" : " with --resume auto instead", for_shell(own_command()));
}

}  // namespace ringtrain
