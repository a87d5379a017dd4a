#include "io/lease/folder_lease.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "io/checkpoint/checkpoint_name.hpp"
#include "io/lease/quiet_thread.hpp"
#include "ringtrain/base/file.hpp"
#include "ringtrain/base/hash.hpp"
#include "ringtrain/base/hmac.hpp"
#include "ringtrain/base/permissions.hpp"
#include "ringtrain/base/process.hpp"

namespace ringtrain::io {
namespace {

using LeaseClock = LeaseJudge::Clock;

constexpr const char* lock_name = "lock";
constexpr std::chrono::seconds notice_interval{10};
constexpr std::chrono::milliseconds first_pause{20}, longest_pause{500};

std::string lock_error(int error) { return std::generic_category().message(error); }

bool has_no_locks(int error) {
  return error == ENOLCK || error == EINVAL || error == ENOSYS || error == EOPNOTSUPP ||
         error == EPERM;
}

std::string seconds_text(std::chrono::milliseconds time) {
  return fmt::format("{:g} s", std::chrono::duration<double>(time).count());
}

LeaseClock::duration in_clock(double seconds) {
  return std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(seconds));
}

// Its content counts: it must be a file of this name only, not a way to another.
bool is_file_of_one_name(int fd) {
  struct stat status {};
  check_storage(::fstat(fd, &status), "fstat of the lock file");
  return S_ISREG(status.st_mode) && status.st_nlink <= 1;
}

std::string first_bytes(int fd) {
  std::array<char, longest_lease> bytes{};
  const int got = check_storage(
      uninterrupted([&] { return static_cast<int>(::pread(fd, bytes.data(), bytes.size(), 0)); }),
      "read of the lock file");
  return {bytes.data(), static_cast<std::size_t>(got)};
}

bool is_deleted(int directory) {
  std::error_code none;
  const auto path = std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", directory), none);
  struct stat status {};
  return path.native().ends_with(" (deleted)") && ::stat(path.c_str(), &status) != 0;
}

std::string stopped_text(const LockFileState& sight) {
  const auto lease = lease_from_text(sight.text);
  const std::string idle = lease && sight.seen_alive ? why_idle(lease->holder.process) : "";
  return idle.empty() ? "" : ", which is " + idle;
}

/// Removes a name unless it was given up.
class Unlinker {
 public:
  Unlinker(int directory, std::string name) : directory_(directory), name_(std::move(name)) {}
  ~Unlinker() {
    if (!name_.empty()) ::unlinkat(directory_, name_.c_str(), 0);
  }
  Unlinker(const Unlinker&) = delete;
  Unlinker& operator=(const Unlinker&) = delete;
  void leave() { name_.clear(); }

 private:
  int directory_;
  std::string name_;
};

}  // namespace

bool try_lock(int fd) {
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  return uninterrupted([&] { return ::fcntl(fd, F_OFD_SETLK, &whole); }) == 0;
}

bool is_lock_taken(int error) { return error == EAGAIN || error == EACCES; }

/// As it is at one moment. Locked by `file` where it is not busy.
struct FolderLease::LockFile {
  LockFileState sight;
  FileDescriptor file;
};

FolderLease::FolderLease(int directory, std::string path, LeaseHolder holder,
                         FileSystem file_system, LeaseCalls calls, LeaseTerms terms)
    : directory_(directory),
      path_(std::move(path)),
      holder_(std::move(holder)),
      file_system_(std::move(file_system)),
      calls_(std::move(calls)),
      terms_(terms),
      token_(random_token()) {
  probe();
  acquire();
  start_beating();
}

FolderLease::~FolderLease() {
  {
    const std::scoped_lock lock(mutex_);
    stops_ = true;
  }
  stopping_.notify_all();
  if (thread_.joinable()) thread_.join();
  if (file_.get() >= 0) write_in_place(lease_head(Lease::State::released), 0);
}

// Of errno, after `name` could not be opened.
Error FolderLease::cannot_write(const std::string& name) const {
  const int error = errno;
  std::string why = lock_error(error);
  if (error == ENOSPC) why += fmt::format(" ({})", free_space(directory_));
  if (error == EACCES) {
    const bool is_there = ::faccessat(directory_, name.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
    const std::string what = is_there ? name : ".";
    why = fmt::format("{}: {}: {}", is_there ? "its file " + what : "the folder", why,
                      why_denied(directory_, what, Access::write));
  }
  return {Exit::storage, "checkpoint directory " + path_, "cannot write in it: " + why};
}

// Locks belong to open file descriptions here, not to processes: a second description is to the
// kernel, and to a server, what a second process is.
void FolderLease::probe() {
  const std::string name = temporary_name(lock_name, token_);
  constexpr int flags = O_RDWR | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  const auto open = [&](int more, mode_t mode) {
    return uninterrupted(
        [&] { return open_beneath(directory_, name.c_str(), flags | more, mode); });
  };
  const FileDescriptor first(open(O_CREAT | O_EXCL, 0600));
  if (first.get() < 0) throw cannot_write(name);
  const Unlinker guard(directory_, name);
  std::string why = "a second lock on a file is granted";
  bool is_locked = try_lock(first.get());
  for (int tries = 0; !is_locked && is_lock_taken(errno) && tries < 100; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));  // somebody looks at it
    is_locked = try_lock(first.get());
  }
  if (!is_locked) {
    if (!has_no_locks(errno)) check_storage(-1, "lock of the checkpoint directory");
    why = lock_error(errno);
  } else {
    const FileDescriptor second(check_storage(open(0, 0), "open of the lock file"));
    locks_hold_ = !try_lock(second.get()) && is_lock_taken(errno);
  }
  if (!locks_hold_)
    notes_.push_back(fmt::format(
        "{} has no file locks that hold ({}; its file system: {}). Who owns it is told by a "
        "heartbeat in its file 'lock' alone, and a killed run's directory is free only {} after "
        "its last. Mount it with locks, as on other hosts (NFS: without nolock; Lustre: flock)",
        path_, why, file_system_.name, seconds_text(terms_.silence)));
}

// Opened anew each time: NFS asks the server for a file's content then, and not before.
FolderLease::LockFile FolderLease::look() const {
  LockFile found;
  const int fd = uninterrupted([&] {
    return open_beneath(directory_, lock_name, O_RDWR | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  });
  if (fd < 0 && errno == ENOENT) return found;
  found.file = FileDescriptor(fd);
  if (fd < 0 ? errno == ELOOP || errno == EISDIR || errno == ENXIO : !is_file_of_one_name(fd))
    throw Error(Exit::storage, "checkpoint directory " + path_,
                "its 'lock' is not a file of one name, as this program makes it; remove it");
  if (fd < 0) throw cannot_write(lock_name);
  found.sight.exists = true;
  if (!try_lock(fd)) {
    found.sight.busy = is_lock_taken(errno);
    if (!found.sight.busy && !has_no_locks(errno))
      check_storage(-1, "lock of the checkpoint directory");
  }
  found.sight.text = first_bytes(fd);
  const auto lease = lease_from_text(found.sight.text);
  found.sight.seen_alive = lease && is_seen_alive(lease->holder);
  return found;
}

void FolderLease::acquire() {
  LeaseJudge judge(holder_, file_system_.is_local, locks_hold_, terms_,
                   in_clock(calls_.last_save_timeout_s));
  const auto start = LeaseClock::now();
  const auto rare_pause = std::clamp<std::chrono::milliseconds>(
      terms_.silence / 20, std::chrono::milliseconds(1), longest_pause);
  for (;;) {
    if (look_and_claim(judge)) return;  // a lock that was free is not held while this waits
    announce(judge, start);
    const bool early = LeaseClock::now() - start < terms_.patience;
    std::this_thread::sleep_for(early ? std::min(first_pause, rare_pause) : rare_pause);
  }
}

bool FolderLease::look_and_claim(LeaseJudge& judge) {
  using Verdict = LeaseJudge::Verdict;
  const LockFile seen = look();
  const Verdict verdict = judge.judge(seen.sight, LeaseClock::now());
  if (verdict == Verdict::refuse)
    throw Error(Exit::locked, "checkpoint directory " + path_,
                fmt::format("in use by {}{}; give each job its own --checkpoint-dir",
                            judge.holder(), stopped_text(seen.sight)));
  if (verdict == Verdict::wait || !claim(seen)) return false;
  if (verdict == Verdict::take_over)
    notes_.push_back(fmt::format("takes over {} from {}: silent for {}", path_, judge.holder(),
                                 seconds_text(terms_.silence)));
  return true;
}

void FolderLease::announce(const LeaseJudge& judge, LeaseClock::time_point start) {
  const auto now = LeaseClock::now();
  const bool is_due = judge.is_finishing() || now - start >= terms_.patience;
  if (!calls_.tell || !is_due || now < next_notice_) return;
  next_notice_ = now + notice_interval;
  if (judge.is_finishing())
    calls_.tell(
        fmt::format("{} is held for the last save of {}: waiting for that", path_, judge.holder()));
  else
    calls_.tell(fmt::format("{} is held by {}: waiting for a heartbeat, or for {} without one",
                            path_, judge.holder(), seconds_text(terms_.silence)));
}

// Who wants to replace a lock file with a certain content first makes a file whose name says that
// content, which one can do only; it then takes the lock file's place, unless that has changed.
bool FolderLease::claim(const LockFile& seen) {
  const LockFileState& sight = seen.sight;
  const std::string name =
      temporary_name(lock_name, hex(hash_text(sight.exists ? "is " + sight.text : "is not")));
  FileDescriptor mine(uninterrupted([&] {
    return open_beneath(directory_, name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  }));
  if (mine.get() < 0 && errno == EEXIST) {
    remove_dead_claim(name);
    return false;
  }
  check_storage(mine.get(), "creation of the lock file");
  Unlinker guard(directory_, name);
  // Another starter may be looking whether this one lives.
  if (!try_lock(mine.get()) && is_lock_taken(errno)) return false;
  const std::string text =
      to_text({.state = Lease::State::held, .holder = holder_, .token = token_});
  const auto size = static_cast<ssize_t>(text.size());
  errno = ENOSPC;  // where it is cut short
  check_storage(::pwrite(mine.get(), text.data(), text.size(), 0) == size ? 0 : -1,
                "write of the lock file");
  if (!file_system_.is_local)
    check_storage(uninterrupted([&] { return ::fdatasync(mine.get()); }), "sync of the lock file");

  const auto now_there = [&] {
    const int fd = uninterrupted([&] {
      return open_beneath(directory_, lock_name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    });
    const FileDescriptor file(fd);
    return fd < 0 ? std::nullopt : std::optional(first_bytes(fd));
  };
  follow_umask(mine.get());
  if (now_there() != (sight.exists ? std::optional(sight.text) : std::nullopt)) return false;
  const int renamed =
      uninterrupted([&] { return ::renameat(directory_, name.c_str(), directory_, lock_name); });
  if (renamed < 0 && errno == ENOENT) return false;  // it was taken for a dead starter's
  check_storage(renamed, "rename of the lock file");
  guard.leave();
  if (now_there() != text) return false;
  file_ = std::move(mine);
  return true;
}

// Of a starter that died amid claim(), which takes it a few milliseconds.
void FolderLease::remove_dead_claim(const std::string& name) {
  const auto now = LeaseClock::now();
  if (std::exchange(claimed_, name) != name) claimed_since_ = now;
  const FileDescriptor file(
      open_beneath(directory_, name.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  const bool is_free = file.get() >= 0 && try_lock(file.get());
  const auto enough = trusts_locks() && is_free ? terms_.patience : terms_.silence;
  if (now - claimed_since_ < enough) return;
  claimed_.clear();
  ::unlinkat(directory_, name.c_str(), 0);
}

// By the token alone: some file systems give a file another inode number now and then.
std::string FolderLease::why_lost() const {
  const int fd = uninterrupted([&] {
    return open_beneath(directory_, lock_name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  });
  const FileDescriptor file(fd);
  if (fd < 0 && (errno == ENOENT || errno == ELOOP || errno == ENXIO))
    return is_deleted(directory_) ? "it was deleted" : "its file 'lock' is gone";
  check_storage(fd, "open of the lock file");
  const auto lease = lease_from_text(first_bytes(fd));
  if (!lease) return "its file 'lock' is no longer this run's";
  if (lease->token == token_) return "";
  return fmt::format("{} has taken it over while this run was silent", lease->holder.text());
}

void FolderLease::require() const {
  const std::string why = why_lost();
  if (!why.empty())
    throw Error(Exit::locked, "checkpoint directory " + path_,
                fmt::format("{}: nothing more is saved in it", why));
}

void FolderLease::require_still(const std::string& path, const std::string& run) {
  const std::string what = "checkpoint directory " + path;
  const FileDescriptor directory(
      check_storage(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC), "open of " + path));
  const FileDescriptor file(uninterrupted([&] {
    return open_beneath(directory.get(), lock_name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  }));
  if (file.get() < 0)
    throw Error(Exit::storage, what,
                fmt::format("its handle is stale, and what has its path now has no file 'lock': {}",
                            lock_error(errno)));
  const auto lease = lease_from_text(first_bytes(file.get()));
  if (!lease) throw Error(Exit::storage, what, "its file 'lock' is no longer this run's");
  if (lease->holder.run != run)
    throw Error(Exit::locked, what,
                fmt::format("{} has taken it over while its file system was away: nothing more is "
                            "saved in it",
                            lease->holder.text()));
}

// A thread of its own: one fsync of a large checkpoint takes longer than a beat, and longer than
// the silence. Where the disk stands still, so does this.
void FolderLease::start_beating() {
  thread_ = quiet_thread([this] { beat_until_stopped(); });
}

void FolderLease::beat_until_stopped() {
  ::prctl(PR_SET_NAME, "ringtrain-lease");
  bool is_told = false;
  for (std::uint64_t beat = 1;; ++beat) {
    {
      std::unique_lock lock(mutex_);
      if (stopping_.wait_for(lock, terms_.beat, [&] { return stops_; })) return;
    }
    write_in_place(lease_beat(beat), lease_beat_offset());
    try {
      if (!is_told) require();
    } catch (const Error& failure) {
      if (failure.code() == Exit::locked && calls_.lost) is_told = calls_.lost(failure.what());
    }
  }
}

// What fails is silence, and others judge it as that. On a disk that this host's kernel alone
// writes, others see it without a sync.
void FolderLease::write_in_place(std::string_view text, std::size_t offset) const {
  [[maybe_unused]] const ssize_t written =
      ::pwrite(file_.get(), text.data(), text.size(), static_cast<off_t>(offset));
  if (!file_system_.is_local) ::fdatasync(file_.get());
}

}  // namespace ringtrain::io
