#pragma once
// Room `base`: what all other rooms are written with - errors and exit codes, files, memory,
// hashes, random numbers, text, time. It knows no training, no MPI and no device, and includes no
// other room.
//
// Threads: functions may be called from any thread; an object belongs to one thread at a time
// unless its contract says more.
//
// Failures are thrown as Error, whose code the process ends with.
#include <atomic>
#include <cstdint>
#include <mutex>
#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>

// One line for programs, whichever fault ends a job: docs/reference/exit-codes.md.

namespace ringtrain {

/// How the job ends, as the exit code of every rank. Documented in docs/reference/exit-codes.md.
enum class Exit : int {
  usage = 64,                    ///< bad option, or the ranks were started with different ones
  incompatible_checkpoint = 65,  ///< valid, but of another model or training
  no_valid_checkpoint = 66,      ///< checkpoints are there, none passes its hashes
  internal = 70,                 ///< a bug, or a library call that must not fail did
  rank_lost = 71,
  stuck = 72,
  locked = 73,  ///< another job owns the checkpoint directory
  data = 74,
  storage = 75,
  not_finite = 76,  ///< the loss, a gradient or the state became NaN or infinite
  inefficient = 77,
  limit = 78,  ///< of the process: threads, open files, memory
};

/// What `code` stands for, in a word that programs read: "storage", "rank_lost".
std::string_view fault_kind(Exit code);

/// A failure this process cannot continue from. what() reads "<what>: <reason>"; internal failures
/// add " [<file>:<line>]". main() puts rank and host in front.
class Error : public std::runtime_error {
 public:
  Error(std::string_view what, std::string_view reason,
        std::source_location at = std::source_location::current());
  /// A failure the user can mend: the reason says how, and no source line is shown.
  Error(Exit code, std::string_view what, std::string_view reason);

  Exit code() const noexcept { return code_; }

  /// The same failure, with more for the line that programs read (fault_line()): a kind that is
  /// not its code's, empty: it is; and `details`, made by key_value().
  Error of_kind(std::string kind, std::string details = "") const;
  std::string_view kind() const { return kind_.empty() ? fault_kind(code_) : kind_; }
  const std::string& details() const noexcept { return details_; }

 private:
  Exit code_ = Exit::internal;
  std::string kind_, details_;
};

/// Writes `text` to standard error past all buffers and locks. What cannot be written is lost: a
/// report must not change how the process ends.
void write_stderr(std::string_view text) noexcept;
/// Writes to standard error and never waits for a reader: a thread that others rely on loses the
/// text instead.
void offer_stderr(std::string_view text) noexcept;

/// Throws Error when the caller broke a documented promise.
inline void expects(bool kept, std::string_view promise,
                    std::source_location at = std::source_location::current()) {
  if (!kept) throw Error("broken precondition", promise, at);
}

/// What the kernel says of `error` and, where a limit of this process is behind it, that limit, its
/// value and what to do: "Too many open files; `ulimit -n` is 256: raise it".
std::string reason_of(int error);

/// The code of a failure with that errno: Exit::limit where no more open files or memory are
/// allowed, else `otherwise`.
Exit code_of(int error, Exit otherwise);

/// Whether a thread or process could not be started, as std::thread tells by std::system_error.
bool lacks_thread(const std::exception& failure);

/// Checks a POSIX call that sets errno: throws when `result` is negative, else returns it.
int check_errno(int result, std::string_view call,
                std::source_location at = std::source_location::current());

/// How far a run has come, for the line that tells of its end. From any thread; never waits.
class FaultContext {
 public:
  /// The last finished one.
  void at_step(std::uint64_t step) noexcept { step_.store(step, std::memory_order_relaxed); }
  std::uint64_t step() const noexcept { return step_.load(std::memory_order_relaxed); }
  /// A checkpoint to go on from, or the folder whose newest that is; empty: none.
  void resume_from(std::string path);
  /// Empty, too, while another thread sets it.
  std::string resume() const;
  /// Forgets it where it is not there any more. Waits for a second at most, and once for each;
  /// where the file system does not answer, it stays.
  void check_resume() noexcept;

 private:
  std::atomic<std::uint64_t> step_{0};
  mutable std::mutex mutex_;
  std::string resume_;
  std::atomic<bool> checked_{false};
};

/// " key=value"; the value in double quotes where that is needed to find its end.
std::string key_value(std::string_view key, std::string_view value);

/// "fault: kind=storage code=75 rank=0 host=n1 step=120 resume=runs/a/step-0000000100.h5", and then
/// `details` of key_value(), with a line's end. Of this host.
std::string fault_line(Exit code, std::string_view kind, int rank, const FaultContext& context,
                       std::string_view details = "");

}  // namespace ringtrain
