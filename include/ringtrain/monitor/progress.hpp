#pragma once
// Room `monitor`: how the ranks fare. Progress says where this rank's main thread is; `telemetry`
// samples the system; slow-downs are detected and explained from both; `watchdog` ends a job that
// cannot go on, over the authenticated connections of `channel`.
//
// Threads: the main thread writes Progress, the watchdog's thread reads it; neither waits.
//
// Collective: nothing, as a rank that hangs must not hang this.
#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "ringtrain/base/clock.hpp"
#include "ringtrain/base/work_progress.hpp"
#include "ringtrain/metrics/trace/timeline.hpp"
#include "ringtrain/monitor/rank_stats.hpp"

namespace ringtrain::monitor {

/// Whether a rank in this phase does nothing but wait for others: it is never itself to blame.
bool waits_for_ranks(metrics::Phase phase);

/// A short text that one thread writes and any reads. Nobody waits for the other: who reads while
/// it is written, and again at each of some tries, gets none.
class SharedText {
 public:
  static constexpr std::size_t most = 240;  ///< of a longer text, its end is kept

  /// `tag` says what it belongs to.
  void write(std::uint64_t tag, std::string_view text) noexcept;
  /// Empty where what is there has another tag.
  std::string read(std::uint64_t tag) const;

 private:
  std::atomic<std::uint64_t> version_{0};  // odd while it is written
  std::atomic<std::uint64_t> tag_{0};
  std::atomic<std::size_t> size_{0};
  std::array<std::atomic<char>, most> text_{};
};

/// Tells the watchdog's thread where the main thread is. Writing costs some stores, and a look at
/// the clock once a step. Written by one thread, but for advance(); read by any.
class Progress final : public WorkProgress {
 public:
  struct Now {
    metrics::Phase phase = metrics::Phase::init;
    std::uint64_t moved = 0;  ///< calls of enter() and advance(): it moves as long as this grows
    std::uint64_t step = 0;   ///< under way, or the last
  };

  void enter(metrics::Phase phase) noexcept {
    const std::uint64_t entered = (now_.load(std::memory_order_relaxed) >> 8) + 1;
    now_.store(entered << 8 | static_cast<std::uint64_t>(phase), std::memory_order_release);
  }
  /// Enters a phase with a path or another item, which a verdict names.
  void enter(metrics::Phase phase, std::string_view item) noexcept {
    item_.write((now_.load(std::memory_order_relaxed) >> 8) + 1, item);
    enter(phase);
  }
  /// Enters the phase of that name; what is read is part of the one under way.
  void at(Work work, std::string_view path) noexcept override;
  void advance() noexcept override { advanced_.fetch_add(1, std::memory_order_relaxed); }
  /// What enter() was given of the phase under way; empty: nothing.
  std::string item() const { return item_.read(now_.load(std::memory_order_acquire) >> 8); }

  /// `step`, counted from 1, begins.
  void begin_step(std::uint64_t step) noexcept { step_.store(step, std::memory_order_relaxed); }
  /// It is over; what follows is the next one's time, unless pause() is called.
  void finish_step() noexcept;
  /// What comes now, up to the end of the next step, is no measure of a step.
  void pause() noexcept { timing_ = false; }

  /// Other steps come, of which nothing is known.
  void forget_steps() noexcept {
    pause();
    timed_.store(0, std::memory_order_release);
  }

  /// The checkpoint of that step is durable.
  void saved(std::uint64_t step) noexcept { saved_.store(step, std::memory_order_relaxed); }
  /// The step of the last durable checkpoint; 0: none is known.
  std::uint64_t saved_step() const noexcept { return saved_.load(std::memory_order_relaxed); }

  /// Where spans of this rank's time go, from here on; null: nobody asks. It outlives what is told
  /// of here.
  void record_in(metrics::Timeline* timeline) noexcept { timeline_ = timeline; }
  metrics::Timeline* timeline() const noexcept { return timeline_; }
  /// Adds a span to the timeline, where there is one. From any thread.
  void record(metrics::Phase phase, const TimeSpan& span,
              metrics::Row row = metrics::Row::main) const noexcept {
    if (metrics::Timeline* const timeline = timeline_) timeline->add(phase, span, row);
  }

  /// Adds what a step took on this rank.
  void account(const metrics::PhaseSeconds& step) noexcept;
  /// Adds seconds of this rank's own work in which the training thread did not run: it was stopped,
  /// or others had its CPU.
  void add_no_cpu(double seconds) noexcept {
    no_cpu_s_.store(no_cpu_s() + seconds, std::memory_order_relaxed);
  }
  double no_cpu_s() const noexcept { return no_cpu_s_.load(std::memory_order_relaxed); }

  Now now() const noexcept;
  /// Sums over all steps accounted for.
  PhaseTotals spent() const noexcept;
  /// The median of the last steps; 0 before there are three.
  double median_step_s() const noexcept;

 private:
  static constexpr std::size_t remembered = 15;

  std::atomic<std::uint64_t> now_{0};  // calls of enter() and, in the lowest byte, the phase
  std::atomic<std::uint64_t> advanced_{0};
  SharedText item_;
  std::atomic<std::uint64_t> step_{0}, saved_{0};
  std::array<std::atomic<float>, remembered> step_s_{};
  std::atomic<std::uint64_t> timed_{0};  // steps in step_s_, which goes round
  std::atomic<std::uint64_t> accounted_{0};
  std::array<std::atomic<double>, metrics::ledger_phases.size()> spent_s_{};
  std::atomic<double> no_cpu_s_{0};
  std::atomic<metrics::Timeline*> timeline_{nullptr};
  Stopwatch watch_;
  bool timing_ = false;
};

}  // namespace ringtrain::monitor
