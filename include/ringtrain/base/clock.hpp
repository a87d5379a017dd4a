#pragma once
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>

namespace ringtrain {

/// Seconds since it was made or its last lap.
class Stopwatch {
 public:
  using Clock = std::chrono::steady_clock;

  double elapsed() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  double lap() {
    const auto now = Clock::now();
    const double seconds = std::chrono::duration<double>(now - start_).count();
    start_ = now;
    return seconds;
  }
  /// When the present lap began.
  Clock::time_point started() const { return start_; }

 private:
  Clock::time_point start_ = Clock::now();
};

/// A moment after which nothing is waited for any longer.
class Deadline {
 public:
  explicit Deadline(double in_s) : in_s_(in_s) {}
  /// Never negative.
  std::chrono::duration<double> left() const {
    return std::chrono::duration<double>(std::max(in_s_ - watch_.elapsed(), 0.0));
  }
  bool over() const { return left().count() == 0; }

 private:
  double in_s_;
  Stopwatch watch_;
};

/// A stretch of one thread's time, and a number that says what it was about.
struct TimeSpan {
  using Clock = std::chrono::steady_clock;

  Clock::time_point begin, end;
  std::uint64_t number = 0;
};

/// Is told of a span by the thread that spent it, once it is over; threads of a kind are numbered
/// from 0. Empty: nobody wants to know.
using OnSpan = std::function<void(int thread, const TimeSpan&)>;

}  // namespace ringtrain
