#include "ringtrain/base/atomic_file.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <streambuf>
#include <system_error>

#include "ringtrain/base/file.hpp"
#include "ringtrain/base/hmac.hpp"

namespace ringtrain {
namespace {

namespace fs = std::filesystem;

// A new file beside another, which goes unless it takes that one's name.
class Temporary {
 public:
  // Nobody else has the name, on this host or another. The process in it is for people.
  explicit Temporary(const fs::path& path)
      : name_(fmt::format("{}.{}-{}.part", path.native(), random_token(), ::getpid())) {
    file_ = FileDescriptor(uninterrupted([this] {
      return ::open(name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    }));
    made_ = file_.get() >= 0;
  }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  ~Temporary() {
    if (made_ && !renamed_) ::unlink(name_.c_str());
  }

  bool made() const { return made_; }
  int file() const { return file_.get(); }
  bool close() { return ::close(file_.release()) == 0; }
  bool rename_to(const fs::path& path) {
    return renamed_ = uninterrupted([&] { return std::rename(name_.c_str(), path.c_str()); }) == 0;
  }

 private:
  const fs::path name_;
  FileDescriptor file_;
  bool made_ = false, renamed_ = false;
};

// A stream's bytes, into a file.
class FileBuffer final : public std::streambuf {
 public:
  explicit FileBuffer(int file) : file_(file) { setp(bytes_.begin(), bytes_.end()); }

  int error() const { return error_; }

 protected:
  int_type overflow(int_type c) override {
    if (sync() != 0) return traits_type::eof();
    if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
    return sputc(traits_type::to_char_type(c));
  }
  int sync() override {
    for (const char* at = pbase(); at < pptr() && error_ == 0;) {
      const ssize_t written = ::write(file_, at, static_cast<std::size_t>(pptr() - at));
      if (written >= 0)
        at += written;
      else if (errno != EINTR)
        error_ = errno;
    }
    setp(bytes_.begin(), bytes_.end());
    return error_ == 0 ? 0 : -1;
  }

 private:
  const int file_;
  int error_ = 0;
  std::array<char, 65536> bytes_;
};

// 0, or the error of the call that failed.
int fill(int file, Durable durable, const std::function<void(std::ostream&)>& write) {
  FileBuffer buffer(file);
  std::ostream out(&buffer);
  write(out);
  out.flush();
  if (buffer.error() != 0) return buffer.error();
  if (!out) return EIO;
  if (durable == Durable::yes && uninterrupted([&] { return ::fsync(file); }) != 0) return errno;
  return 0;
}

// Devices, streams and the kernel's own files.
bool is_no_disk(const fs::path& path) {
  const std::string& text = path.native();
  return text.starts_with("/proc/") || text.starts_with("/sys/") ||
         (text.starts_with("/dev/") && !text.starts_with("/dev/shm/"));
}

// What the kernel refuses to follow, too (fs.protected_symlinks): another user's link in a folder
// where everybody may put one.
bool is_strange_link(const fs::path& link) {
  struct stat of_link {
  }, of_folder{};
  if (::lstat(link.c_str(), &of_link) != 0 || ::stat(link.parent_path().c_str(), &of_folder) != 0)
    return true;
  constexpr mode_t for_all = S_ISVTX | S_IWOTH;
  return (of_folder.st_mode & for_all) == for_all && of_link.st_uid != ::geteuid() &&
         of_link.st_uid != of_folder.st_uid;
}

struct Target {
  fs::path path;
  std::string refusal = {};  // empty: none
};

// The end of all links, looked at one by one: those in /proc lead to open files.
Target target_of(fs::path path) {
  constexpr int most = 40;  // links, as the kernel follows
  std::error_code failure;
  for (int links = 0; links < most && !failure; ++links) {
    const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
    path = fs::canonical(folder, failure) / path.filename();
    if (failure) break;
    if (is_no_disk(path))
      return {path, "what lies in /dev, /proc or /sys is not replaced by a file"};
    if (!fs::is_symlink(path, failure)) return {path};
    if (is_strange_link(path))
      return {path, "another user's link in a folder of all is not followed"};
    path = path.parent_path() / fs::read_symlink(path, failure);
  }
  return {path, reason_of(failure ? failure.value() : ELOOP)};
}

}  // namespace

std::string write_atomically(const fs::path& path, Durable durable,
                             const std::function<void(std::ostream&)>& write) {
  Temporary temporary(path);
  if (!temporary.made()) return reason_of(errno);
  if (const int error = fill(temporary.file(), durable, write); error != 0) return reason_of(error);
  if (!temporary.close()) return reason_of(errno);  // network file systems may tell here only
  if (!temporary.rename_to(path)) return reason_of(errno);
  return durable == Durable::yes ? sync_folder_of(path) : "";
}

void remove_left_over(const fs::path& path) try {
  const std::string start = path.filename().native() + ".";
  const auto long_ago = fs::file_time_type::clock::now() - std::chrono::hours(24);
  for (const auto& entry : fs::directory_iterator(path.parent_path())) {
    const std::string name = entry.path().filename();
    std::error_code gone;
    if (name.starts_with(start) && name.ends_with(".part") &&
        entry.last_write_time(gone) < long_ago && !gone)
      fs::remove(entry.path(), gone);
  }
} catch (const fs::filesystem_error&) {  // they only take room
}

std::string write_output(const fs::path& path, Durable durable,
                         const std::function<void(std::ostream&)>& write) {
  const Target target = target_of(path);
  return target.refusal.empty() ? write_atomically(target.path, durable, write) : target.refusal;
}

std::string why_unwritable(const fs::path& path) {
  const Target target = target_of(path);
  if (!target.refusal.empty()) return target.refusal;
  std::error_code failure;
  const auto type = fs::status(target.path, failure).type();
  if (type != fs::file_type::not_found && type != fs::file_type::regular)
    return "it is there and no regular file";
  return Temporary(target.path).made() ? "" : reason_of(errno);
}

// Some network file systems cannot, and need not.
std::string sync_folder_of(const fs::path& path) {
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  const FileDescriptor opened(
      uninterrupted([&] { return ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  if (opened.get() < 0) return errno == EACCES ? "" : reason_of(errno);  // may not be listed
  constexpr std::array cannot{EINVAL, EROFS, ENOSYS, EOPNOTSUPP, EPERM};
  if (uninterrupted([&] { return ::fsync(opened.get()); }) == 0 ||
      std::ranges::find(cannot, errno) != cannot.end())
    return "";
  return reason_of(errno);
}

std::string create_folders(const fs::path& path) {
  if (path.empty()) return "";
  std::error_code failure;
  if (fs::is_directory(path, failure)) return "";
  if (path.has_parent_path() && path.parent_path() != path)
    if (std::string reason = create_folders(path.parent_path()); !reason.empty()) return reason;
  if (!path.has_filename()) return "";  // of "a/b/": "a/b" is there now
  if (::mkdir(path.c_str(), 0777) != 0) return errno == EEXIST ? "" : reason_of(errno);
  return sync_folder_of(path);
}

}  // namespace ringtrain
