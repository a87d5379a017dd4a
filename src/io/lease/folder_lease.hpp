#pragma once
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "io/lease/file_system.hpp"
#include "io/lease/lease.hpp"
#include "ringtrain/base/file.hpp"

namespace ringtrain::io {

/// How a new run waits for a directory that another one may still hold, and is told later that it
/// has lost it.
struct LeaseCalls {
  double last_save_timeout_s = 0;  ///< for the last save of the writer of a killed run
  /// What is waited for; every ten seconds.
  std::function<void(const std::string&)> tell{};
  /// On the lease's thread: another run has the directory. Called again until it returns true.
  std::function<bool(const std::string&)> lost{};
};

/// Tries the kernel's lock on an open file, without waiting: false with errno.
bool try_lock(int fd);
/// Whether that errno says that another one has it.
bool is_lock_taken(int error);

/// A checkpoint directory that this process holds until destruction: by the kernel's lock on the
/// file `lock`, and by a lease in that file, whose beat a thread renews. So it is known to be held
/// also where locks do not reach, and known to be free when a host is lost that had its lock.
class FolderLease {
 public:
  /// Waits until the directory is free, its holder silent, or known to live: then throws Error with
  /// Exit::locked. `path` is for messages; `directory` outlives the object.
  FolderLease(int directory, std::string path, LeaseHolder holder, FileSystem file_system,
              LeaseCalls calls = {}, LeaseTerms terms = {});
  /// Gives the directory back at once.
  ~FolderLease();
  FolderLease(const FolderLease&) = delete;
  FolderLease& operator=(const FolderLease&) = delete;

  /// The lock file, which says Lease::State::held in its first line.
  int file() const { return file_.get(); }
  /// A text that is this lease's alone, for names of files that are its holder's.
  const std::string& token() const { return token_; }
  /// Throws unless the directory that has this path now still has a lease of `run`: Error with
  /// Exit::locked where another run has taken it, with Exit::storage where there is none.
  static void require_still(const std::string& path, const std::string& run);
  /// Whether a lock that is free means, on this file system, that nobody lives who had it.
  bool trusts_locks() const { return locks_hold_ && file_system_.is_local; }
  const LeaseTerms& terms() const { return terms_; }

  /// Throws Error with Exit::locked once another run has the directory, which stays so; with
  /// Exit::storage where that cannot be seen now. Called right before a file is published, replaced
  /// or deleted. From any thread.
  void require() const;
  /// Remarks for the log since the last call.
  std::vector<std::string> take_notes() { return std::exchange(notes_, {}); }

 private:
  struct LockFile;
  void probe();
  LockFile look() const;
  void acquire();
  bool look_and_claim(LeaseJudge& judge);
  bool claim(const LockFile& seen);
  Error cannot_write(const std::string& name) const;
  void remove_dead_claim(const std::string& name);
  void announce(const LeaseJudge& judge, LeaseJudge::Clock::time_point start);
  std::string why_lost() const;
  void start_beating();
  void beat_until_stopped();
  void write_in_place(std::string_view text, std::size_t offset) const;

  const int directory_;
  const std::string path_;
  const LeaseHolder holder_;
  const FileSystem file_system_;
  const LeaseCalls calls_;
  const LeaseTerms terms_;
  const std::string token_;
  FileDescriptor file_;
  bool locks_hold_ = false;
  std::string claimed_;  // by another starter, since:
  LeaseJudge::Clock::time_point claimed_since_, next_notice_;
  std::vector<std::string> notes_;
  std::mutex mutex_;  // of stops_
  std::condition_variable stopping_;
  bool stops_ = false;
  std::thread thread_;
};

}  // namespace ringtrain::io
