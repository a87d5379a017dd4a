#pragma once
#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

namespace ringtrain {

/// What is wrong with a disk, read anew from a text file at every call. Its lines:
///   rate BYTES               a second, of all that is read and written
///   delay CALL MS
///   hang CALL                until the line is gone
///   fail CALL ERRNO [BYTES]  once that many bytes were written since the start
/// CALL: any, stat, list, open, read, write, fsync, rename, unlink or statfs. No file, no faults.
class Faults {
 public:
  explicit Faults(std::string file) : file_(std::move(file)) {}

  /// Takes as long as `call` of `bytes` bytes does on that disk; 0, or the errno it fails with.
  /// What hangs, also ends once `given_up` says so. Thread-safe.
  int suffer(std::string_view call, std::size_t bytes, const std::function<bool()>& given_up);

 private:
  struct Now {
    bool hangs = false;
    std::chrono::duration<double> delay{0};
    double rate = 0;  // 0: unlimited
    int error = 0;
  };
  Now look_up(std::string_view call) const;
  /// All transfers of all threads stand in one line.
  void transfer(std::size_t bytes, double rate);

  const std::string file_;
  std::atomic<std::uint64_t> written_ = 0;
  std::mutex mutex_;
  std::chrono::steady_clock::time_point free_at_;
};

}  // namespace ringtrain
