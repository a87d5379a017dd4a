#include "io/files/byte_source.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "io/files/file_bytes.hpp"
#include "ringtrain/base/error.hpp"
#include "ringtrain/base/text.hpp"
#include "ringtrain/io/files/read_retries.hpp"

namespace ringtrain::io {
namespace {

// Holds what surrounds an image in its record.
constexpr std::uint64_t window_bytes = 4096;
// At a time: a slow network file system is seen to go on.
constexpr std::size_t most_in_one_read = std::size_t{1} << 20;

[[noreturn]] void fail(const std::string& path, std::string_view reason) {
  throw Error(Exit::data, "read " + printable(path), reason);
}

}  // namespace

FileDescriptor open_to_read(const std::string& path) {
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) {
    const int error = errno;
    check_open_files(error, "read " + printable(path));
    throw ReadFailure(error, 0);
  }
  return file;
}

std::size_t read_at(const FileDescriptor& file, std::uint64_t offset, std::span<std::uint8_t> into,
                    WorkProgress* progress) {
  std::size_t done = 0;
  while (done < into.size()) {
    const std::size_t wanted = std::min(into.size() - done, most_in_one_read);
    const auto got =
        ::pread(file.get(), into.data() + done, wanted, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw ReadFailure(errno, offset + done);
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
    advance(progress);
  }
  return done;
}

std::size_t read_all_at(const FileDescriptor& file, std::uint64_t offset,
                        std::span<std::uint8_t> into, WorkProgress* progress) {
  const std::size_t got = read_at(file, offset, into, progress);
  struct stat status {};
  if (got == into.size()) return got;
  if (::fstat(file.get(), &status) < 0) throw ReadFailure(errno, offset + got);
  if (static_cast<std::uint64_t>(status.st_size) > offset + got) throw ReadFailure(0, offset + got);
  return got;
}

FileSource::FileSource(const std::string& path, WorkProgress* progress) try
    : path_(path), progress_(progress) {
  size_ = retries_.run(path_, [this](bool) { return open(); });
} catch (const ReadFailure& failure) {
  fail(path, failure.what());
}

std::uint64_t FileSource::open() {
  file_ = open_to_read(path_);
  struct stat status {};
  if (::fstat(file_.get(), &status) < 0) throw ReadFailure(errno, 0);
  if (!S_ISREG(status.st_mode)) fail(path_, "not a regular file");
  // Reading ahead would fetch the images in between. Only advice.
  static_cast<void>(::posix_fadvise(file_.get(), 0, 0, POSIX_FADV_RANDOM));
  return static_cast<std::uint64_t>(status.st_size);
}

std::span<const std::uint8_t> FileSource::at(Part part) {
  expects(part.size <= size_ && part.offset <= size_ - part.size, "a part lies within the file");
  if (part.offset < start_ || part.end() > start_ + window_.size()) {
    start_ = part.offset;
    window_.resize(std::min(std::max(part.size, window_bytes), size_ - part.offset));
    try {
      window_.resize(retries_.run(path_, [this](bool again) {
        if (again) open();
        return read_all_at(file_, start_, window_, progress_);
      }));
    } catch (const ReadFailure& failure) {
      fail(path_, fmt::format("{} at byte {}", failure.what(), start_));
    }
    if (window_.size() < part.size) fail(path_, "it became shorter while it was read");
  }
  return std::span(window_).subspan(part.offset - start_, part.size);
}

}  // namespace ringtrain::io
