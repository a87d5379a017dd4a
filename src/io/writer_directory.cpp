#include "io/writer_directory.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <optional>
#include <system_error>
#include <thread>

#include "io/checkpoint_name.hpp"
#include "io/checkpoint_opener.hpp"
#include "io/open_beneath.hpp"
#include "io/storage_error.hpp"
#include "ringtrain/base/atomic_file.hpp"

namespace ringtrain {
namespace {

constexpr const char *lock_name = "lock", *last_save_name = "last-save.txt";
// A dead trainer's writer lets go only once its last system call returns.
constexpr std::chrono::milliseconds lock_patience{2000}, lock_pause{20};
constexpr std::chrono::seconds notice_interval{10};

std::string last_error() { return std::generic_category().message(errno); }

// What file systems answer that have no such call.
bool unsupported() {
  return errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP || errno == EPERM;
}

FileDescriptor open_directory(const std::string& path) {
  const std::string failure = create_folders(path);  // what is wrong, open() says better
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd >= 0) return FileDescriptor(fd);
  throw Error(Exit::storage, "checkpoint directory " + path,
              fmt::format("{}; name one that exists or can be created with --checkpoint-dir",
                          failure.empty() ? last_error() : failure));
}

bool try_lock(int fd) {
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  return uninterrupted([&] { return ::fcntl(fd, F_OFD_SETLK, &whole); }) == 0;
}

std::string printable_content(int fd) {
  char text[512];
  const ssize_t got = ::pread(fd, text, sizeof text, 0);
  std::string content(text, got > 0 ? static_cast<std::size_t>(got) : 0);
  std::erase_if(content, [](char c) { return c < ' ' || c > '~'; });
  return content.empty() ? "an unnamed job" : content;
}

// False with errno, where another process holds it for too long or there are no locks.
bool lock_in_time(int fd, const std::string& path, const LockWait& wait) {
  using Clock = std::chrono::steady_clock;
  Clock::time_point deadline = Clock::now() + lock_patience, next_notice;
  bool waits = false;
  while (!try_lock(fd)) {
    const int failure = errno;
    const auto now = Clock::now();
    const std::string holder = printable_content(fd);
    const bool finishing = holder.starts_with(finishing_text(""));
    if (std::exchange(waits, finishing) != finishing)
      deadline = now + lock_patience +
                 std::chrono::ceil<std::chrono::milliseconds>(
                     std::chrono::duration<double>(finishing ? wait.timeout_s : 0));
    errno = failure;
    if ((errno != EAGAIN && errno != EACCES) || now > deadline) return false;
    if (finishing && wait.tell && now >= next_notice) {
      wait.tell(fmt::format("{} is {}: waiting for that", path, holder));
      next_notice = now + notice_interval;
    }
    std::this_thread::sleep_for(lock_pause);
  }
  return true;
}

// Its content will be replaced: it must be a file of this name only, not a way to another.
bool is_file_of_one_name(int fd) {
  struct stat status {};
  check_storage(::fstat(fd, &status), "fstat of the lock file");
  return S_ISREG(status.st_mode) && status.st_nlink <= 1;
}

bool is_directory(int directory, const std::string& name) {
  struct stat status {};
  return ::fstatat(directory, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 &&
         S_ISDIR(status.st_mode);
}

/// Removes the temporary unless it was published.
class Temporary {
 public:
  Temporary(int directory, std::string name) : directory_(directory), name_(std::move(name)) {}
  ~Temporary() { ::unlinkat(directory_, name_.c_str(), 0); }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;

 private:
  int directory_;
  std::string name_;
};

bool exists(int directory, const char* name) {
  return ::faccessat(directory, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

// NFS and Lustre have no RENAME_NOREPLACE, FAT has no links either: then the lock on the directory
// has to do.
bool rename_to_free_name(int directory, const char* from, const char* to) {
  const auto done = [](int result) { return result == 0; };
  if (done(uninterrupted(
          [&] { return ::renameat2(directory, from, directory, to, RENAME_NOREPLACE); })))
    return true;
  if (unsupported()) {
    if (done(::linkat(directory, from, directory, to, 0)))
      return true;  // ~Temporary unlinks `from`
    if (unsupported()) {
      if (exists(directory, to)) return false;
      if (done(::renameat(directory, from, directory, to))) return true;
    }
  }
  if (errno == EEXIST) return false;
  throw Error(Exit::storage, "rename of the temporary", last_error());
}

// Some network file systems refuse it, and need none: names are durable once the server answers.
void sync_directory(int directory) {
  const int result = uninterrupted([&] { return ::fsync(directory); });
  if (result != 0 && !unsupported()) check_storage(result, "fsync of the directory");
}

// Bytes a user may still write; nothing where the file system does not say.
std::optional<std::uint64_t> free_bytes(int directory) {
  struct statvfs disk {};
  if (::fstatvfs(directory, &disk) != 0 || disk.f_blocks == 0 || disk.f_frsize == 0)
    return std::nullopt;
  constexpr auto most = std::numeric_limits<std::uint64_t>::max();
  if (disk.f_bavail > most / disk.f_frsize) return most;
  return std::uint64_t(disk.f_bavail) * disk.f_frsize;
}

}  // namespace

std::string finishing_text(const std::string& owner) {
  return "held for the last save of " + owner;
}

CheckpointDirectory::CheckpointDirectory(const std::string& path, const std::string& owner,
                                         std::uint64_t needed_bytes, const LockWait& wait)
    : path_(path), directory_(open_directory(path)) {
  warn_of_others();
  lock(owner, wait);
  ::unlinkat(directory_.get(), last_save_name, 0);  // it tells of an earlier run
  remove_temporaries();
  require_space(needed_bytes);
}

void CheckpointDirectory::warn_of_others() {
  struct stat status {};
  check_storage(::fstat(directory_.get(), &status), "fstat of " + path_);
  if ((status.st_mode & S_IWOTH) != 0)
    notes_.push_back(fmt::format(
        "everybody may write in {} and so change checkpoints unseen: chmod o-w it", path_));
}

void CheckpointDirectory::lock(const std::string& owner, const LockWait& wait) {
  const int fd = uninterrupted([&] {
    return open_beneath(directory_.get(), lock_name,
                        O_RDWR | O_CREAT | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0600);
  });
  lock_ = FileDescriptor(fd);
  if (fd < 0 ? errno == ELOOP || errno == EISDIR || errno == ENXIO : !is_file_of_one_name(fd))
    throw Error(Exit::storage, "checkpoint directory " + path_,
                "its 'lock' is not a file of one name, as this program makes it; remove it");
  if (fd < 0)
    throw Error(Exit::storage, "checkpoint directory " + path_,
                fmt::format("cannot write in it: {}", last_error()));
  if (!lock_in_time(fd, path_, wait)) {
    if (errno == EAGAIN || errno == EACCES)
      throw Error(Exit::locked, "checkpoint directory " + path_,
                  fmt::format("in use by {}; give each job its own --checkpoint-dir",
                              printable_content(fd)));
    if (errno != ENOLCK && !unsupported()) check_storage(-1, "lock of the checkpoint directory");
    notes_.push_back(fmt::format("{} has no file locks ({}): keep other jobs away from it yourself",
                                 path_, last_error()));
    lock_ = {};
    return;
  }
  check_storage(uninterrupted([&] { return ::ftruncate(fd, 0); }), "ftruncate of the lock file");
  check_storage(
      uninterrupted([&] { return static_cast<int>(::pwrite(fd, owner.data(), owner.size(), 0)); }),
      "write of the lock file");
}

void CheckpointDirectory::remove_temporaries() {
  if (lock_.get() < 0) return;  // they may belong to a running job
  for (const std::string& name : names_in(directory_.get())) {
    if (!is_temporary_name(name)) continue;
    notes_.push_back(::unlinkat(directory_.get(), name.c_str(), 0) == 0
                         ? fmt::format("removed {}: left unfinished by a run that died", name)
                         : fmt::format("could not remove {}: {}", name, last_error()));
  }
}

void CheckpointDirectory::require_space(std::uint64_t needed_bytes) const {
  const auto free = free_bytes(directory_.get());
  if (free && *free < needed_bytes)
    throw Error(Exit::storage, "checkpoint directory " + path_,
                fmt::format("two checkpoints need {} MiB, {}; make room or name another directory",
                            (needed_bytes >> 20) + 1, free_space()));
}

std::string CheckpointDirectory::free_space() const {
  const auto free = free_bytes(directory_.get());
  return free ? fmt::format("{} bytes are free", *free) : "free space unknown";
}

FileDescriptor CheckpointDirectory::create(const std::string& temporary) {
  int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC | O_DIRECT;
  for (;;) {
    // What bears this name was put there by no one who holds the lock, or by an open() below: some
    // file systems make the file before they refuse the flags.
    ::unlinkat(directory_.get(), temporary.c_str(), 0);
    const int fd = ::openat(directory_.get(), temporary.c_str(), flags, 0600);
    if (fd >= 0) return FileDescriptor(fd);
    if (errno == EEXIST && is_directory(directory_.get(), temporary))
      throw Error(Exit::storage, "create " + temporary,
                  "a directory has this name and is in the way; remove it");
    if (errno == EINVAL && (flags & O_DIRECT) != 0)
      flags &= ~O_DIRECT;
    else if (errno != EINTR)
      check_storage(fd, "create a temporary");
  }
}

std::uint64_t CheckpointDirectory::save(const Snapshot& snapshot, FileWriter& writer) {
  const std::string name = checkpoint_name(snapshot.metadata.step),
                    unfinished = temporary_name(name);
  const Temporary guard(directory_.get(), unfinished);
  FileDescriptor file = create(unfinished);
  const WrittenCheckpoint written = writer.write(file.get(), snapshot);
  // NFS may tell of a failed write here only
  check_storage(::close(file.release()), "close");
  publish(unfinished, name, snapshot.lineage, written.state_hash);
  intact_.insert(name);
  return written.bytes;
}

void CheckpointDirectory::publish(const std::string& temporary, const std::string& name,
                                  const std::string& lineage, std::uint64_t state_hash) {
  if (!rename_to_free_name(directory_.get(), temporary.c_str(), name.c_str()))
    replace_unless_equal(temporary, name, lineage, state_hash);
  // an equal file's name too: who put it there may have died before this call
  sync_directory(directory_.get());
}

void CheckpointDirectory::replace_unless_equal(const std::string& temporary,
                                               const std::string& name, const std::string& lineage,
                                               std::uint64_t state_hash) {
  if (lineage_at(directory_.get(), name).value_or(lineage) != lineage)
    throw Error(Exit::storage, "rename to " + name,
                "another training's checkpoint has this name; move it away");
  std::string was = "damaged";
  try {
    const CheckpointFile old = open_checkpoint_at(directory_.get(), name);
    old.verify();
    if (old.state_hash() == state_hash) return;  // resumed and ended at once: nothing new
    was = "of run " + old.run_id();
  } catch (const Error&) {
  }
  if (is_directory(directory_.get(), name))
    throw Error(Exit::storage, "rename to " + name,
                "a directory has this name and is in the way; remove it");
  check_storage(uninterrupted([&] {
                  return ::renameat(directory_.get(), temporary.c_str(), directory_.get(),
                                    name.c_str());
                }),
                "rename of the temporary");
  notes_.push_back(fmt::format("replaced {}, which was {}", name, was));
}

bool CheckpointDirectory::is_intact(const std::string& name) {
  if (intact_.contains(name)) return true;
  try {
    open_checkpoint_at(directory_.get(), name).verify();
  } catch (const Error&) {
    return false;
  }
  intact_.insert(name);
  return true;
}

// Files of later steps are another run's future (this one resumed from before them): not ours to
// delete, and no reason to delete ours.
void CheckpointDirectory::retain(const std::string& lineage, int keep, std::uint64_t newest_step) {
  int kept = 0;
  for (const std::string& name : checkpoint_names(directory_.get())) {
    if (checkpoint_step(name) > newest_step) continue;
    if (!intact_.contains(name) && lineage_at(directory_.get(), name) != lineage) continue;
    if (kept >= keep && name != protected_) {
      if (::unlinkat(directory_.get(), name.c_str(), 0) != 0)
        notes_.push_back(fmt::format("could not delete {}: {}", name, last_error()));
      intact_.erase(name);
    } else if (is_intact(name)) {
      ++kept;
    }
  }
}

void CheckpointDirectory::write_last_save(const std::string& text) {
  constexpr const char* unfinished = "last-save.txt.new";
  ::unlinkat(directory_.get(), unfinished, 0);
  const FileDescriptor file(::openat(directory_.get(), unfinished,
                                     O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  const auto size = static_cast<ssize_t>(text.size());
  if (file.get() >= 0 && ::write(file.get(), text.data(), text.size()) == size &&
      ::fsync(file.get()) == 0)
    ::renameat(directory_.get(), unfinished, directory_.get(), last_save_name);
}

std::vector<std::string> CheckpointDirectory::take_notes() { return std::exchange(notes_, {}); }

}  // namespace ringtrain
