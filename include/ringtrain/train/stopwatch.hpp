#pragma once
#include <chrono>

namespace ringtrain {

/// Seconds since it was made or its last lap.
class Stopwatch {
 public:
  double elapsed() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  double lap() {
    const auto now = Clock::now();
    const double seconds = std::chrono::duration<double>(now - start_).count();
    start_ = now;
    return seconds;
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

}  // namespace ringtrain
