#pragma once
// Room `monitor/slowdown`: whether training has become slower, and why. SlowdownDetector judges the
// times of steps, `slowdown_cause` compares what the ranks and their systems did before and since;
// SlowdownReporter makes sentences of both. ImbalanceDetector finds ranks that hold up the others.
//
// Threads: rank 0's main thread; the watchdog's has an ImbalanceDetector of its own.
// Collective: nothing.
#include <chrono>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ringtrain/monitor/rank_stats.hpp"
#include "ringtrain/monitor/slowdown/slowdown_detector.hpp"

namespace ringtrain::monitor {

struct SlowdownCause;

/// The links between `hosts`, in bytes a second from each host to the next, the last to the first.
struct LinkSpeeds {
  std::vector<std::string> hosts = {};
  std::vector<double> start = {}, now = {};  ///< as the run began, and in a slow-down
  double step_bytes = 0;                     ///< what each carries in a step
  double step_s = 0;                         ///< what that takes now
};
/// Says which links have become slower and take a part of the step, and what to do.
std::string compare_links(const LinkSpeeds& links);

/// Reports when training has become slow, however slowly that came, why, and when it has recovered.
/// Thread: rank 0's main thread.
class SlowdownReporter {
 public:
  using Clock = std::chrono::system_clock;
  /// The ranks' accounts as they are known now, by rank; maybe none.
  using Ask = std::function<std::vector<RankStats>()>;

  /// `hosts` by rank. What `ask` and `now` refer to outlives this object.
  SlowdownReporter(std::vector<std::string> hosts, Ask ask,
                   std::function<Clock::time_point()> now = Clock::now)
      : hosts_(std::move(hosts)), ask_(std::move(ask)), now_(std::move(now)) {}

  /// A speed known before, or from elsewhere.
  struct Expectation {
    double step_s = 0;
    std::string source;                 ///< as in "than the 812.0 that SOURCE"
    metrics::PhaseSeconds phases = {};  ///< of a step of rank 0 then; all 0: not known
  };
  /// A run that is slower from the start is reported, too.
  void expect(Expectation expected);

  struct Report {
    std::string what, text;  ///< the event's name and sentence
    bool links = false;      ///< a link between hosts may be why
  };
  /// A step with so many examples, of all ranks, is over. `saving`: a save is in flight. Mostly
  /// returns empty texts.
  Report step(double seconds, double examples, bool saving);

  /// The mean step of rank 0 in the fastest two minutes, with what its phases took; none before
  /// there were two that could be judged.
  struct BestPace {
    double step_s = 0;
    metrics::PhaseSeconds phases;
  };
  std::optional<BestPace> best() const;
  /// Whether a slower pace has come to stay.
  bool has_settled() const { return has_settled_; }

 private:
  struct Moment {
    double seconds = 0;  ///< of all steps before it
    Clock::time_point time;
  };
  struct Snapshot : Moment {
    std::vector<RankStats> accounts;
  };
  struct Period {
    Snapshot begin, end;
  };

  void keep_snapshot();
  /// The accounts of so long ago, or the oldest that are kept.
  const Snapshot& snapshot(double seconds_ago) const;
  void remember_normal();
  void begin_again();
  Report slower(double examples, bool saving);
  std::string compared_with(double examples) const;
  SlowdownCause why() const;
  std::string over(double examples) const;
  std::string settled(double examples);
  std::string clock_time(Clock::time_point time) const;
  /// When training was so many seconds of steps before now.
  Clock::time_point ago(double seconds) const;

  const std::vector<std::string> hosts_;
  const Ask ask_;
  const std::function<Clock::time_point()> now_;
  SlowdownDetector detector_;
  Expectation expected_;
  double seconds_ = 0;              // of all steps so far
  std::deque<Snapshot> snapshots_;  // of some minutes, every few seconds
  std::deque<Moment> moments_;      // of some days, every minute
  std::optional<Period> best_;      // the fastest two minutes
  int bests_ = 0;
  AccountsSpan recent_, before_;        // up to the last normal window; to the last slow-down
  std::vector<RankStats> next_recent_;  // where recent_ begins later
  int normal_windows_ = 0, sudden_ended_ = 0;
  bool has_settled_ = false;
};

}  // namespace ringtrain::monitor
