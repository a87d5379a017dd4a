#pragma once
#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

namespace ringtrain {

/// What is wrong with a disk, read anew from a text file at every call. Its lines:
///   rate BYTES               a second, of all that is read and written
///   delay CALL MS
///   hang CALL                until the line is gone
///   fail CALL ERRNO [BYTES]  once that many bytes were written since the start
///   nth CALL ERRNO N [TIMES] the N-th such call since the line is there fails, and TIMES - 1 more
///   locks none|refused       each flock succeeds, whoever holds it, or fails with ENOLCK
///   late SECONDS             for so long, names that came by another mount are not seen
/// CALL: any, stat, list, open, read, write, fsync, rename, unlink or statfs. No file, no faults.
class Faults {
 public:
  explicit Faults(std::string file) : file_(std::move(file)) {}

  /// Takes as long as `call` of `bytes` bytes does on that disk; 0, or the errno it fails with.
  /// What hangs, also ends once `given_up` says so. Thread-safe.
  int suffer(std::string_view call, std::size_t bytes, const std::function<bool()>& given_up);

  enum class Locks { work, none, refused };
  Locks locks() const;
  /// For how many seconds names of others are not seen.
  double late_s() const;

 private:
  struct Now {
    bool hangs = false;
    std::chrono::duration<double> delay{0};
    double rate = 0;  // 0: unlimited
    int error = 0;
  };
  /// `first`: this call is looked up for the first time, and counts.
  Now look_up(std::string_view call, bool first);
  /// The first word behind `kind`; empty where no line begins so.
  std::string setting(std::string_view kind) const;
  /// All transfers of all threads stand in one line.
  void transfer(std::size_t bytes, double rate);

  const std::string file_;
  std::atomic<std::uint64_t> written_ = 0;
  std::mutex mutex_;
  std::chrono::steady_clock::time_point free_at_;
  std::map<std::string, std::uint64_t> calls_;  // by the line of `nth` that counts them
};

}  // namespace ringtrain
