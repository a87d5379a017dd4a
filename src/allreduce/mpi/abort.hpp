#pragma once
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>

namespace ringtrain::allreduce {

/// A word in memory that the ranks of one host share, there for as long as one of them lives.
using SharedWord =
    std::unique_ptr<std::atomic<std::uint32_t>, void (*)(std::atomic<std::uint32_t>*)>;
/// Zero at first, of the file's beginning; all ranks pass the same file.
SharedWord share_word(int file);

/// Lets one of the ranks of a job that call this return true: on one host the first, and of several
/// hosts that with the lowest number, unless another is report_delay() ahead. The others
/// wait to be ended by it; they return false if that does not happen for some seconds. `reported`
/// is the host's; where a rank has none, it returns true: rather twice than never.
bool wait_to_report(std::atomic<std::uint32_t>* reported, int host) noexcept;

/// How long a host leaves the report to those with lower numbers; less than the others wait for it.
std::chrono::milliseconds report_delay(int host) noexcept;

/// Ends this process with `code` after some seconds, whatever its other threads wait for.
void exit_after(int seconds, int code) noexcept;

/// Calls `end` on a thread of its own when it lives for longer than `limit`: what it guards hangs.
/// Time in which the process was stopped does not count. Where no thread is to be had, it does
/// nothing.
class Guard {
 public:
  Guard(std::chrono::milliseconds limit, const std::function<void()>& end) noexcept;

 private:
  std::jthread thread_;
};

}  // namespace ringtrain::allreduce
