#pragma once
// Room `io/files`: bytes of data sets - whole files, shards of TFRecord or our own records - and
// what is tried again where a network file system fails for a while.
//
// Threads: loader threads share a file's descriptor; an object says where it belongs to one.
//
// Indexes of shards are checked before memory is taken for what they claim.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "ringtrain/base/error.hpp"

namespace ringtrain::io {

/// One sample that cannot be decoded. The loader replaces it and counts. Any other failure ends the
/// job, as a file does that is gone or may not be read, or a disk.
class UnreadableSample : public Error {
 public:
  UnreadableSample(std::string_view what, std::string_view reason)
      : Error(Exit::data, what, reason) {}
};

/// A call on a file of training data that failed: errno, and where. An errno of 0 says that reading
/// ended before the file does.
class ReadFailure : public std::system_error {
 public:
  ReadFailure(int error, std::uint64_t offset);
  int error() const { return code().value(); }
  std::uint64_t offset() const { return offset_; }
  /// "Input/output error (errno 5) at byte 4096".
  std::string text() const;

 private:
  std::uint64_t offset_;
};

/// Whether the call may succeed when it is made again: the disk, the server or the network is in
/// trouble, rather than the file not there or not to be read.
bool may_pass(int error);

/// How reads of training data are tried again. One for all readers of a loader, on any thread.
class ReadRetries {
 public:
  static constexpr int most_attempts = 5;  ///< about eight seconds in all
  static constexpr double most_s = 10;     ///< after which none begins

  /// `report` is given one line for the user when a read fails that is tried again; it is called on
  /// the thread that reads.
  explicit ReadRetries(std::function<void(const std::string&)> report = report_on_stderr)
      : report_(std::move(report)) {}

  /// Nobody waits for what is being read: reads that fail are not tried again, waits are over.
  void end();
  /// How many attempts were begun again so far. It grows while reads fail, so who waits for them
  /// sees that they do not hang.
  std::uint64_t count() const { return count_; }

  /// Calls `attempt(again)` until it throws no ReadFailure that may_pass(); waits longer and longer
  /// in between. `again`: so the file is to be opened anew. Throws Error(Exit::data) with path,
  /// offset, errno and what to do when attempts or time are used up, or after end(). Other failures
  /// are the caller's.
  template <class Attempt>
  auto run(const std::string& path, Attempt attempt) {
    for (Trouble trouble;;) {
      try {
        return attempt(trouble.attempts > 0);
      } catch (const ReadFailure& failure) {
        if (!may_pass(failure.error())) throw;
        wait_after(failure, path, trouble);
      }
    }
  }

  static void report_on_stderr(const std::string& line);

 private:
  using Clock = std::chrono::steady_clock;
  struct Trouble {
    int attempts = 0;  // that failed
    Clock::time_point begin{};
  };
  void wait_after(const ReadFailure& failure, const std::string& path, Trouble& trouble);

  const std::function<void(const std::string&)> report_;
  std::atomic<std::uint64_t> count_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;  // guarded by mutex_
};

}  // namespace ringtrain::io
