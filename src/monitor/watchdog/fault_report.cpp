#include "monitor/watchdog/fault_report.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "ringtrain/base/file.hpp"
#include "ringtrain/base/program.hpp"
#include "ringtrain/host/run_with_timeout.hpp"
#include "ringtrain/io/checkpoint/checkpoint.hpp"

namespace ringtrain::monitor {
namespace {

// Where the folder of --checkpoint-dir is now that has the checkpoint `resume`; empty: there.
std::string moved_to(const config::Options& options, const std::string& resume) {
  std::error_code failure;
  const std::filesystem::path file(resume), folder = file.parent_path();
  const auto named = std::filesystem::path(options.checkpoint_dir) / file.filename();
  return folder == std::filesystem::absolute(named, failure).lexically_normal().parent_path()
             ? ""
             : folder.string();
}

std::string checkpoint(const config::Options& options, std::uint64_t saved_step,
                       const std::string& resume) {
  if (options.checkpoint_dir.empty())
    return "nothing was saved, as there is no --checkpoint-dir; to start anew";
  if (saved_step > 0 && resume.empty())
    return fmt::format(
        "the last durable checkpoint is of step {}, but not in {} any more; once its "
        "folder is there again",
        saved_step, options.checkpoint_dir);
  if (saved_step > 0 && !moved_to(options, resume).empty())
    return fmt::format("the last durable checkpoint is {}; to go on from it", resume);
  if (saved_step > 0)
    return fmt::format("the last durable checkpoint in {} is of step {}; to go on from it",
                       options.checkpoint_dir, saved_step);
  if (options.resume.from == config::Resume::From::file)
    return fmt::format(
        "to go on from {}, or from what was saved in {} since, by that --resume FILE",
        options.resume.file, options.checkpoint_dir);
  return fmt::format("to go on from the newest checkpoint in {}", options.checkpoint_dir);
}

// What the command must say instead to do that: the same --resume would begin where it began.
std::string other_option(const config::Options& options, std::uint64_t saved_step,
                         const std::string& resume) {
  const std::string folder = moved_to(options, resume);
  if (saved_step > 0 && !folder.empty())
    return fmt::format(" with --checkpoint-dir {} --resume auto instead",
                       for_shell(std::vector{folder}));
  const config::Resume::From from = options.resume.from;
  if (options.checkpoint_dir.empty() || from == config::Resume::From::newest) return "";
  if (saved_step > 0) {
    const auto file =
        std::filesystem::path(options.checkpoint_dir) / io::checkpoint_name(saved_step);
    return fmt::format(" with --resume {} instead", for_shell(std::vector{file.string()}));
  }
  return from == config::Resume::From::scratch ? " with --resume auto instead" : "";
}

std::string write_report(int rank, std::string_view text) {
  std::error_code failure;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(failure);
  static std::atomic<int> reports{0};  // of this process; two may come within a second
  const std::string path = (folder / fmt::format("train-report-rank{}-{}-{}.txt", rank, ::getpid(),
                                                 std::time(nullptr) + reports++))
                               .string();
  const FileDescriptor file(::open(
      path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
  const bool written = file.get() >= 0 && ::write(file.get(), text.data(), text.size()) ==
                                              static_cast<ssize_t>(text.size());
  if (written) return "report: " + path;
  return fmt::format("no report in {}: {}", path, std::generic_category().message(errno));
}

}  // namespace

std::string write_fault_report(int rank, std::string_view text) {
  return host::run_with_timeout(
      std::chrono::seconds(1), [=, text = std::string(text)] { return write_report(rank, text); },
      "no report: the folder for temporary files ($TMPDIR, else /tmp) does not answer");
}

std::string restart_hint(const config::Options& options, std::uint64_t saved_step,
                         FaultContext& context) {
  context.check_resume();
  const std::string resume = context.resume();
  return fmt::format("{}, start all ranks again{}:\n  {}\n",
                     checkpoint(options, saved_step, resume),
                     other_option(options, saved_step, resume), for_shell(own_command()));
}

}  // namespace ringtrain::monitor
