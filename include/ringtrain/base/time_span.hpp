#pragma once
#include <chrono>
#include <cstdint>
#include <functional>

namespace ringtrain {

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
