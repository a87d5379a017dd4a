#include "ringtrain/base/file.hpp"

#include <fcntl.h>
#include <linux/openat2.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>
#include <system_error>

namespace ringtrain {

void write_all(int descriptor, std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // nobody reads: no reason to stop training
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

// A pipe that can be written to takes PIPE_BUF bytes at once.
void write_if_read(int descriptor, std::string_view text) noexcept {
  constexpr std::size_t most = PIPE_BUF;
  while (!text.empty()) {
    pollfd one{descriptor, POLLOUT, 0};
    if (::poll(&one, 1, 0) <= 0 || (one.revents & POLLOUT) == 0) return;
    const std::string_view part = text.substr(0, std::min(text.size(), most));
    write_all(descriptor, part);
    text.remove_prefix(part.size());
  }
}

namespace {

int open_plain_name(int directory, const char* name, int flags, mode_t mode) {
  if (std::strchr(name, '/') != nullptr || std::strcmp(name, "..") == 0) {
    errno = EXDEV;
    return -1;
  }
  return ::openat(directory, name, flags | O_NOFOLLOW, mode);
}

}  // namespace

namespace {

// Keeps nothing open: who waits for a pipe's end waits for all that have it.
[[noreturn]] void ask_for(const char* path) noexcept {
  ::syscall(SYS_close_range, 0U, ~0U, 0U);
  const bool gone = ::access(path, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR);
  ::_exit(gone ? 1 : 0);
}

}  // namespace

bool is_known_gone(const std::string& path, std::chrono::milliseconds time) noexcept {
  const pid_t child = ::_Fork();  // without fork()'s handlers, which may wait for a stuck thread
  if (child == 0) ask_for(path.c_str());
  const auto end = std::chrono::steady_clock::now() + time;
  for (int status = 0; child > 0;) {
    if (::waitpid(child, &status, WNOHANG) != 0)
      return WIFEXITED(status) && WEXITSTATUS(status) == 1;
    if (std::chrono::steady_clock::now() > end) {
      ::kill(child, SIGKILL);
      break;
    }
    ::usleep(1000);
  }
  return false;
}

std::string storage_reason(int error) {
  const std::string text = reason_of(error);
  if (error != EDQUOT) return text;
  return text + ": a quota of bytes or files is used up, whatever the file system itself has free";
}

std::string read_small_file(const std::string& path, std::string_view what) {
  constexpr std::size_t most = 1 << 20;
  const auto refused = [&](std::string_view why) { return Error(Exit::usage, what, why); };
  const auto reason = [] { return std::generic_category().message(errno); };
  const FileDescriptor open(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status = {};
  if (open.get() < 0 || ::fstat(open.get(), &status) < 0) throw refused(reason());
  if (!S_ISREG(status.st_mode)) throw refused("is not a regular file");
  std::string text(most + 1, '\0');
  std::size_t done = 0;
  while (done < text.size()) {
    const auto got = ::read(open.get(), text.data() + done, text.size() - done);
    if (got < 0 && errno != EINTR) throw refused(reason());
    if (got == 0) break;
    done += got > 0 ? static_cast<std::size_t>(got) : 0;
  }
  if (done > most) throw refused("such a file has at most 1 MiB");
  text.resize(done);
  return text;
}

int open_beneath(int directory, const char* name, int flags, mode_t mode) {
  open_how how{};
  how.flags = static_cast<unsigned>(flags | O_NOFOLLOW);
  how.mode = mode;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  const long fd = ::syscall(SYS_openat2, directory, name, &how, sizeof how);
  // sandboxes answer EPERM to calls that they do not know; where it is the file's, it comes again
  if (fd < 0 && (errno == ENOSYS || errno == EPERM))
    return open_plain_name(directory, name, flags, mode);
  return static_cast<int>(fd);
}

}  // namespace ringtrain
