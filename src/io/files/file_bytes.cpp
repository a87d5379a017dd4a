#include "io/files/file_bytes.hpp"

#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>

#include "io/files/byte_source.hpp"
#include "ringtrain/base/text.hpp"

namespace ringtrain::io {
namespace {

// Far above any image; a mistaken tar or video must not fill the memory.
constexpr off_t largest = off_t{1} << 29, largest_set = off_t{1} << 40;

[[noreturn]] void fail_sample(const std::string& path, std::string_view reason) {
  throw UnreadableSample("read " + printable(path), reason);
}

std::size_t size_of(int file, const std::string& path, off_t most) {
  struct stat status {};
  if (::fstat(file, &status) < 0) throw ReadFailure(errno, 0);
  if (!S_ISREG(status.st_mode)) fail_sample(path, "not a regular file");
  if (status.st_size == 0) fail_sample(path, "the file is empty (0 bytes)");
  if (status.st_size > most)
    fail_sample(path, fmt::format("{} bytes, more than the {} allowed", status.st_size, most));
  return static_cast<std::size_t>(status.st_size);
}

void read_once(const std::string& path, std::vector<std::uint8_t>& bytes, off_t most,
               WorkProgress* progress) {
  const FileDescriptor file = open_to_read(path);
  bytes.resize(size_of(file.get(), path, most));
  const std::size_t got = read_all_at(file, 0, bytes, progress);
  if (got < bytes.size())
    fail_sample(path, fmt::format("ends at byte {} of {}", got, bytes.size()));
}

void read(const std::string& path, std::vector<std::uint8_t>& bytes, off_t most,
          ReadRetries& retries, WorkProgress* progress) {
  try {
    retries.run(path, [&](bool) { read_once(path, bytes, most, progress); });
  } catch (const ReadFailure& failure) {
    throw NoAccess("read " + printable(path),
                   failure.offset() == 0 ? failure.what() : failure.text());
  }
}

}  // namespace

void check_open_files(int error, std::string_view call) {
  if (error == EMFILE || error == ENFILE) throw Error(Exit::limit, call, reason_of(error));
}

void read_file(const std::string& path, std::vector<std::uint8_t>& bytes, ReadRetries& retries,
               WorkProgress* progress) {
  read(path, bytes, largest, retries, progress);
}

void read_file(const std::string& path, std::vector<std::uint8_t>& bytes, WorkProgress* progress) {
  ReadRetries retries;
  read(path, bytes, largest, retries, progress);
}

void read_large_file(const std::string& path, std::vector<std::uint8_t>& bytes,
                     WorkProgress* progress) {
  ReadRetries retries;
  read(path, bytes, largest_set, retries, progress);
}

}  // namespace ringtrain::io
