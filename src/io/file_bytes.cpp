#include "io/file_bytes.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <system_error>

#include "ringtrain/base/file_descriptor.hpp"
#include "ringtrain/base/printable.hpp"
#include "ringtrain/io/dataset.hpp"

namespace ringtrain {
namespace {

// Far above any image; a mistaken tar or video must not fill the memory.
constexpr off_t largest = off_t{1} << 29;
// At a time: a slow network file system is seen to go on.
constexpr std::size_t most_at_once = std::size_t{1} << 20;

[[noreturn]] void fail_sample(const std::string& path, std::string_view reason) {
  throw UnreadableSample("read " + printable(path), reason);
}

std::string system_reason() { return std::generic_category().message(errno); }

std::size_t size_of(int file, const std::string& path) {
  struct stat status {};
  if (::fstat(file, &status) < 0) fail_sample(path, system_reason());
  if (!S_ISREG(status.st_mode)) fail_sample(path, "not a regular file");
  if (status.st_size == 0) fail_sample(path, "the file is empty (0 bytes)");
  if (status.st_size > largest)
    fail_sample(path, fmt::format("{} bytes, more than the {} allowed", status.st_size, largest));
  return static_cast<std::size_t>(status.st_size);
}

}  // namespace

void check_open_files(int error, std::string_view call) {
  if (error == EMFILE) throw Error(Exit::data, call, "Too many open files; raise `ulimit -n`");
  if (error == ENFILE)
    throw Error(Exit::data, call, "Too many open files on this host; raise its fs.file-max");
}

void read_file(const std::string& path, std::vector<std::uint8_t>& bytes, WorkProgress* progress) {
  // O_NONBLOCK: opening a FIFO would wait for ever.
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) {
    const int error = errno;
    check_open_files(error, "read " + printable(path));
    fail_sample(path, std::generic_category().message(error));
  }
  bytes.resize(size_of(file.get(), path));
  for (std::size_t done = 0; done < bytes.size();) {
    const auto got =
        ::read(file.get(), bytes.data() + done, std::min(bytes.size() - done, most_at_once));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_sample(path, fmt::format("{} at byte {}", system_reason(), done));
    if (got == 0) fail_sample(path, fmt::format("ends at byte {} of {}", done, bytes.size()));
    done += static_cast<std::size_t>(got);
    advance(progress);
  }
}

}  // namespace ringtrain
