#pragma once
// Room `metrics/trace`: what every thread of every rank did, for --timeline. Timeline keeps the
// newest spans of one rank; save_timeline() gathers those of all ranks, sets their clocks right and
// writes one file in Chrome's trace format.
//
// Threads: any may call Timeline::add(), which never waits.
// Collective: save_timeline().
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string_view>
#include <vector>

#include "ringtrain/base/clock.hpp"
#include "ringtrain/metrics/scaling/phase.hpp"

namespace ringtrain::metrics {

/// Whose time it is. Threads that sum, of which there are few, are numbered from `sums` on, loader
/// threads from `loader` on.
enum class Row : std::uint8_t { main, sums, gpu = sums + 16, writer, loader };

/// The newest spans of one rank's threads, for --timeline. Any thread adds; nothing is allocated
/// then, and nobody waits. Read while threads add, it may miss some of what is newest.
class Timeline {
 public:
  using Clock = TimeSpan::Clock;

  static Clock::duration length(double seconds) {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  }

  struct Span {
    std::int64_t begin_ns = 0, end_ns = 0;  ///< of the steady clock
    std::uint64_t number = 0;               ///< step, bytes or batch
    std::uint32_t row = 0;                  ///< a Row, plus the thread's number in it
    Phase phase{};
  };

  /// Keeps `capacity` spans, one at least.
  explicit Timeline(std::size_t capacity) : places_(capacity) {}

  void add(Phase phase, const TimeSpan& span, Row row = Row::main, int thread = 0) noexcept;
  /// The same, of so many seconds from `begin` on.
  void add(Phase phase, Clock::time_point begin, double seconds, std::uint64_t number,
           Row row = Row::main) noexcept;
  /// Those that are kept, the oldest first.
  std::vector<Span> spans() const;
  /// All that were added.
  std::uint64_t added() const noexcept { return added_.load(std::memory_order_acquire); }
  std::uint64_t capacity() const noexcept { return places_.size(); }

 private:
  // begin, end, number; row and what it shows
  using Place = std::array<std::atomic<std::uint64_t>, 4>;

  std::vector<Place> places_;
  std::atomic<std::uint64_t> added_{0};
};

/// What Span::number is, for the user.
std::string_view number_name_of(Phase phase);

}  // namespace ringtrain::metrics
