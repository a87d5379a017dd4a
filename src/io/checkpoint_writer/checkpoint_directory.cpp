#include "io/checkpoint_writer/checkpoint_directory.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "io/checkpoint/checkpoint_name.hpp"
#include "io/checkpoint/checkpoint_opener.hpp"
#include "ringtrain/base/atomic_file.hpp"
#include "ringtrain/base/file.hpp"
#include "ringtrain/base/permissions.hpp"

namespace ringtrain::io {
namespace {

// Of what a run makes that wants the directory, until it is the lock file.
constexpr std::string_view starters_begin = ".lock.";

constexpr const char* last_save_name = "last-save.txt";

std::string last_error() { return storage_reason(errno); }

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

}  // namespace

CheckpointDirectory::CheckpointDirectory(const std::string& path, const LeaseHolder& owner,
                                         std::uint64_t needed_bytes, const LeaseCalls& calls,
                                         const LeaseTerms& terms, FileDescriptor opened)
    : path_(path), directory_(opened.get() < 0 ? open_directory(path) : std::move(opened)) {
  warn_of_others();
  lease_.emplace(directory_.get(), path_, owner, file_system_of(directory_.get()), calls, terms);
  ::unlinkat(directory_.get(), last_save_name, 0);  // it tells of an earlier run
  remove_temporaries();
  await_space(needed_bytes, calls);
  require_space(needed_bytes);
}

// What a killed run has left may fill the disk, and is known to be dead only after a while.
void CheckpointDirectory::await_space(std::uint64_t needed_bytes, const LeaseCalls& calls) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const auto lacks = [&] {
    const auto free = free_bytes(directory_.get());
    return free && *free < needed_bytes && !perhaps_alive_.empty();
  };
  auto next_notice = start;
  while (lacks() && Clock::now() - start <= lease_->terms().silence + lease_->terms().beat) {
    if (calls.tell && Clock::now() >= next_notice) {
      calls.tell(fmt::format("{} has no room for two checkpoints: waiting whether {} {}", path_,
                             perhaps_alive_.begin()->first, "was left by a run that died"));
      next_notice = Clock::now() + std::chrono::seconds(10);
    }
    std::this_thread::sleep_for(lease_->terms().silence / 30);
    remove_temporaries();
  }
}

void CheckpointDirectory::warn_of_others() {
  struct stat status {};
  check_storage(::fstat(directory_.get(), &status), "fstat of " + path_);
  if ((status.st_mode & S_IWOTH) != 0)
    notes_.push_back(fmt::format(
        "everybody may write in {} and so change checkpoints unseen: chmod o-w it", path_));
}

void CheckpointDirectory::remove_temporaries() {
  std::erase_if(perhaps_alive_,
                [&](const auto& entry) { return !exists(directory_.get(), entry.first.c_str()); });
  for (const std::string& name : names_in(directory_.get())) {
    if (!is_temporary_name(name) || !is_dead(name)) continue;
    if (remove(name))
      notes_.push_back(fmt::format("removed {}: left unfinished by a run that died", name));
    perhaps_alive_.erase(name);
  }
}

// One cause may keep many files, at each save anew.
bool CheckpointDirectory::remove(const std::string& name) {
  if (::unlinkat(directory_.get(), name.c_str(), 0) == 0) return true;
  if (errno != ENOENT && failed_removals_.insert(errno).second)
    notes_.push_back(
        fmt::format("could not remove {}: {}; nor can others be for that cause, which "
                    "is told once",
                    name, last_error()));
  return false;
}

// Its writer locks it. Where locks do not tell, it is dead when it has not changed for as long as a
// holder may be silent.
bool CheckpointDirectory::is_dead(const std::string& name) {
  struct stat status {};
  if (::fstatat(directory_.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) return false;
  if (!S_ISREG(status.st_mode)) return true;  // no writer's
  const FileDescriptor file(
      open_beneath(directory_.get(), name.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (file.get() >= 0 && !try_lock(file.get()) && is_lock_taken(errno)) {
    perhaps_alive_[name];
    return false;
  }
  // A starter's file is locked only once it is there.
  if (lease_->trusts_locks() && !name.starts_with(starters_begin)) return true;
  const auto now = std::chrono::steady_clock::now();
  const LastSeen seen{status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec, now};
  LastSeen& before = perhaps_alive_.try_emplace(name, seen).first->second;
  if (before.size != seen.size || before.changed_s != seen.changed_s ||
      before.changed_ns != seen.changed_ns)
    before = seen;
  return now - before.since >= lease_->terms().silence;
}

void CheckpointDirectory::require_space(std::uint64_t needed_bytes) const {
  const auto free = free_bytes(directory_.get());
  if (free && *free < needed_bytes)
    throw Error(Exit::storage, "checkpoint directory " + path_,
                fmt::format("two checkpoints need {} MiB, {}; make room or name another directory",
                            (needed_bytes >> 20) + 1, free_space()));
}

std::string CheckpointDirectory::free_space() const { return io::free_space(directory_.get()); }

// Nobody else has the token. The process is for people; saves of this one are numbered.
std::string CheckpointDirectory::new_name(std::string_view name) {
  return temporary_name(name, fmt::format("{}-{}-{}", lease_->token(), ::getpid(), files_++));
}

FileDescriptor CheckpointDirectory::create(const std::string& temporary) {
  int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC | O_DIRECT;
  for (;;) {
    FileDescriptor file(::openat(directory_.get(), temporary.c_str(), flags, 0600));
    if (file.get() >= 0) {
      try_lock(file.get());  // so that it is known to be written; not all file systems can
      return file;
    }
    if (errno == EINTR) continue;
    if (errno != EINVAL || (flags & O_DIRECT) == 0) check_storage(-1, "create a temporary");
    flags &= ~O_DIRECT;
    // Some file systems make the file before they refuse the flags.
    ::unlinkat(directory_.get(), temporary.c_str(), 0);
  }
}

bool CheckpointDirectory::answers() const {
  struct stat status {};
  return ::fstat(directory_.get(), &status) == 0 || (errno != ESTALE && errno != ENOTCONN);
}

std::uint64_t CheckpointDirectory::save(const Snapshot& snapshot, FileWriter& writer) {
  lease_->require();  // what is not published is not to fill another run's disk
  if (!perhaps_alive_.empty()) remove_temporaries();
  const std::string name = checkpoint_name(snapshot.metadata.step), unfinished = new_name(name);
  const Temporary guard(directory_.get(), unfinished);
  FileDescriptor file = create(unfinished);
  const WrittenCheckpoint written = writer.write(file.get(), snapshot);
  follow_umask(file.get());
  // NFS may tell of a failed write here only
  check_storage(::close(file.release()), "close");
  publish(unfinished, name, snapshot, written.state_hash);
  intact_.insert(name);
  if (snapshot.metadata.is_best) publish_best(name, snapshot, writer);
  return written.bytes;
}

// The file before keeps the name until this one is durable. A file system without links gets the
// bytes once more.
void CheckpointDirectory::publish_best(const std::string& name, const Snapshot& snapshot,
                                       FileWriter& writer) {
  if (lineage_at(directory_.get(), best_name).value_or(snapshot.lineage) != snapshot.lineage)
    throw Error(Exit::storage, fmt::format("link {} to {}", best_name, name),
                "another training's checkpoint has this name; move it away");
  const std::string unfinished = new_name(best_name);
  const Temporary guard(directory_.get(), unfinished);
  if (::linkat(directory_.get(), name.c_str(), directory_.get(), unfinished.c_str(), 0) != 0) {
    FileDescriptor file = create(unfinished);
    writer.write(file.get(), snapshot);
    follow_umask(file.get());
    check_storage(::close(file.release()), "close");
  }
  lease_->require();
  check_storage(uninterrupted([&] {
                  return ::renameat(directory_.get(), unfinished.c_str(), directory_.get(),
                                    best_name);
                }),
                "rename of the temporary");
  sync_directory(directory_.get());
}

void CheckpointDirectory::publish(const std::string& temporary, const std::string& name,
                                  const Snapshot& snapshot, std::uint64_t state_hash) {
  lease_->require();
  if (!rename_to_free_name(directory_.get(), temporary.c_str(), name.c_str()))
    replace_unless_equal(temporary, name, snapshot, state_hash);
  // an equal file's name too: who put it there may have died before this call
  sync_directory(directory_.get());
}

void CheckpointDirectory::replace_unless_equal(const std::string& temporary,
                                               const std::string& name, const Snapshot& snapshot,
                                               std::uint64_t state_hash) {
  const std::string& lineage = snapshot.lineage;
  const auto retries = std::make_shared<RetryBudget>();  // trouble that passes is no damage
  if (lineage_at(directory_.get(), name, retries.get()).value_or(lineage) != lineage)
    throw Error(Exit::storage, "rename to " + name,
                "another training's checkpoint has this name; move it away");
  std::string was = "damaged";
  try {
    const CheckpointFile old = open_checkpoint_at(directory_.get(), name, path_, nullptr, retries);
    old.verify();
    const bool same_state = old.state_hash() == state_hash;
    const CheckpointMetadata &before = old.metadata(), &now = snapshot.metadata;
    if (same_state && before.best == now.best && before.is_best == now.is_best)
      return;  // resumed and ended at once: nothing new
    was = same_state ? "" : "of run " + old.run_id();
  } catch (const StaleCheckpoint&) {
    throw;  // it says nothing of the file: this save fails, the next one tries again
  } catch (const Error& failure) {
    if (failure.code() == Exit::storage) throw;  // it may be intact, but not be read
  }
  if (is_directory(directory_.get(), name))
    throw Error(Exit::storage, "rename to " + name,
                "a directory has this name and is in the way; remove it");
  lease_->require();  // to verify the old one may have taken long
  check_storage(uninterrupted([&] {
                  return ::renameat(directory_.get(), temporary.c_str(), directory_.get(),
                                    name.c_str());
                }),
                "rename of the temporary");
  if (!was.empty()) notes_.push_back(fmt::format("replaced {}, which was {}", name, was));
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
void CheckpointDirectory::retain(const std::string& lineage, int keep, std::uint64_t newest_step,
                                 const std::function<bool()>& is_wanted) {
  int kept = 0;
  if (!perhaps_alive_.empty()) remove_temporaries();
  for (const std::string& name : checkpoint_names(directory_.get())) {
    if (checkpoint_step(name) > newest_step) continue;
    if (!intact_.contains(name) && lineage_at(directory_.get(), name) != lineage) continue;
    if (kept >= keep && name != protected_) {
      lease_->require();
      remove(name);
      intact_.erase(name);
      continue;
    }
    if (!intact_.contains(name) && is_wanted()) return;
    kept += is_intact(name);
  }
}

void CheckpointDirectory::write_last_save(const std::string& text) try {
  const std::string unfinished = new_name(last_save_name);
  const FileDescriptor file(::openat(directory_.get(), unfinished.c_str(),
                                     O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  const Temporary guard(directory_.get(), unfinished);
  const auto size = static_cast<ssize_t>(text.size());
  if (file.get() < 0 || ::write(file.get(), text.data(), text.size()) != size ||
      ::fsync(file.get()) != 0)
    return;
  follow_umask(file.get());
  lease_->require();
  ::renameat(directory_.get(), unfinished.c_str(), directory_.get(), last_save_name);
  ::fsync(directory_.get());
} catch (const Error&) {
}

std::vector<std::string> CheckpointDirectory::take_notes() {
  std::vector<std::string> notes = lease_->take_notes();
  std::ranges::move(std::exchange(notes_, {}), std::back_inserter(notes));
  return notes;
}

}  // namespace ringtrain::io
