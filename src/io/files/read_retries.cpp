#include "ringtrain/io/files/read_retries.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/text.hpp"

namespace ringtrain::io {
namespace {

// Before each attempt but the first.
constexpr std::array<double, ReadRetries::most_attempts - 1> pauses_s{0.25, 0.75, 2, 5};

// What says something of the file, or of this process; all else is trouble on the way to the file.
constexpr std::array lasting{ENOENT, ENOTDIR, EACCES,     EPERM,  ELOOP, ENAMETOOLONG, EISDIR,
                             ENXIO,  EMFILE,  ENFILE,     EINVAL, EBADF, EFAULT,       EOVERFLOW,
                             ESPIPE, ENOSYS,  EOPNOTSUPP, EFBIG,  ENODEV};

}  // namespace

ReadFailure::ReadFailure(int error, std::uint64_t offset)
    : std::system_error(error, std::generic_category()), offset_(offset) {}

std::string ReadFailure::text() const {
  if (error() == 0)
    return fmt::format("reading ends at byte {}, and the file does not (errno 0)", offset_);
  return fmt::format("{} (errno {}) at byte {}", code().message(), error(), offset_);
}

bool may_pass(int error) { return std::ranges::find(lasting, error) == lasting.end(); }

void ReadRetries::end() {
  const std::scoped_lock lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

void ReadRetries::wait_after(const ReadFailure& failure, const std::string& path,
                             Trouble& trouble) {
  const auto now = Clock::now();
  if (trouble.attempts++ == 0) {
    trouble.begin = now;
    report_(fmt::format("read {}: {}; trying again, at most {} times in {:.0f} s", printable(path),
                        failure.text(), most_attempts - 1, most_s));
  }
  const double elapsed_s = std::chrono::duration<double>(now - trouble.begin).count();
  bool ended = false;
  if (trouble.attempts < most_attempts && elapsed_s < most_s) {
    const std::chrono::duration<double> pause(
        pauses_s[static_cast<std::size_t>(trouble.attempts) - 1]);
    std::unique_lock lock(mutex_);
    ended = changed_.wait_for(lock, pause, [this] { return ended_; });
    ++count_;
    if (!ended) return;
  }
  throw Error(Exit::data, "read " + printable(path),
              fmt::format("{}, {} times in {:.1f} s; nothing takes the place of what cannot be "
                          "read: look at the disk or the mount (dmesg, df), then start the job "
                          "again from its last checkpoint",
                          failure.text(), trouble.attempts, elapsed_s));
}

void ReadRetries::report_on_stderr(const std::string& line) {
  write_stderr(fmt::format("train: {}\n", line));
}

}  // namespace ringtrain::io
