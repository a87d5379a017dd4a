#pragma once
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <string>
#include <string_view>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/unique_handle.hpp"

namespace ringtrain {

/// Sole owner of an open file, socket or memfd; -1 owns nothing.
using FileDescriptor = UniqueHandle<int, ::close, -1>;

/// Writes `text` past all buffers and locks; waits while a pipe is full. What cannot be written is
/// lost: output must not change how the process ends.
void write_all(int descriptor, std::string_view text) noexcept;

/// Writes `text` and never waits for a reader: what a full pipe or a stopped terminal does not take
/// is lost. For threads that others rely on.
void write_if_read(int descriptor, std::string_view text) noexcept;

/// openat() that never leaves `directory`: no symbolic link, `..`, absolute path or link of /proc
/// is followed. Returns -1 with errno, ELOOP for a link and EXDEV for a way out. Where the kernel
/// has no openat2 or a sandbox forbids it, `name` must be a plain file name.
int open_beneath(int directory, const char* name, int flags, mode_t mode = 0);

/// What errno `error` of a call on the user's file system means, in words that a user can act on.
std::string storage_reason(int error);

/// Checks a POSIX call on the user's file system: its failures are the user's to mend.
inline int check_storage(int result, std::string_view call) {
  if (result >= 0) return result;
  const int error = errno;
  throw Error(code_of(error, Exit::storage), call, storage_reason(error));
}

/// Whether nothing is at `path`. A child process asks, which is left behind where the file system
/// does not answer within `time`; then, and where there is no other process, false.
bool is_known_gone(const std::string& path, std::chrono::milliseconds time) noexcept;

/// What a regular file of at most 1 MiB holds. Does not wait for a writer, as opening a FIFO would.
/// Throws Error(Exit::usage) with `what` before the reason.
std::string read_small_file(const std::string& path, std::string_view what);

/// What `call()` returns, made again as long as signals interrupt it, as network file systems let
/// happen.
template <class Call>
int uninterrupted(Call call) {
  int result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

}  // namespace ringtrain
