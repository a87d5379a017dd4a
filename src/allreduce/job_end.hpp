#pragma once
#include <chrono>
#include <string>

namespace ringtrain {

/// Of all ranks of `job` that call this at about the same time, lets one return true: on one host
/// the first, and of several hosts that with the lowest number, unless another is report_delay()
/// ahead. The others wait to be ended by it; they return false if that does not happen for some
/// seconds.
bool wait_to_report(const std::string& job, int host) noexcept;

/// How long a host leaves the report to those with lower numbers; less than the others wait for it.
std::chrono::milliseconds report_delay(int host) noexcept;

/// Ends this process with `code` after some seconds, whatever its other threads wait for.
void exit_after(int seconds, int code) noexcept;

}  // namespace ringtrain
