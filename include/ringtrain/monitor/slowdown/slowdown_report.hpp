#pragma once
// Room `monitor/slowdown`: whether training has become slower, and why. SpeedRule judges the speed,
// `slowdown_cause` compares what the ranks and their systems did usually and since;
// SlowdownReporter makes sentences of both.
//
// Threads: rank 0's main thread.
// Collective: nothing.
#include <array>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ringtrain/metrics/records.hpp"
#include "ringtrain/monitor/rank_stats.hpp"
#include "ringtrain/monitor/slowdown/speed_rule.hpp"

namespace ringtrain::monitor {

/// Reports when training has become slow, why, and when it has recovered.
class SlowdownReporter {
 public:
  /// Fills in the ranks' accounts as they are known now, by rank; maybe none.
  using Ask = std::function<void(std::vector<RankStats>&)>;

  /// `below`: as SpeedRule has it. `hosts` by rank. What `ask` refers to outlives this object.
  SlowdownReporter(double below, std::vector<std::string> hosts, Ask ask);

  /// A speed known before, or from elsewhere.
  struct Expectation {
    double step_s = 0;
    std::string source;                 ///< as in "than the 812.0 that SOURCE"
    metrics::PhaseSeconds phases = {};  ///< of a step of rank 0 then; all 0: not known
  };
  /// The first speed that is known is compared with this, once.
  void expect(Expectation expected) { expected_ = std::move(expected); }

  struct Report {
    std::string what, text;  ///< the event's name and sentence
    bool links = false;      ///< a link between hosts may be why
  };
  /// A step with so many examples, of all ranks, is over. The `saving_s` of it that were spent
  /// waiting for a save do not count. Mostly returns empty texts.
  Report step(double seconds, double examples, double saving_s);

  /// Nothing before the reference is known.
  std::optional<metrics::SpeedShare> speed() const;
  /// Whether a slow-down was told, or may be within a minute.
  bool suspects() const { return rule_.slow() || rule_.below_limit(); }

  /// What the run reaches, and the phases of rank 0's step then.
  struct Reached {
    double examples_per_second = 0;
    metrics::PhaseSeconds phases;
  };
  std::optional<Reached> reached() const;
  /// Whether the run was slower than was expected for so long that it will stay so.
  bool stays_slower() const { return stays_slower_; }

 private:
  struct Snapshot {
    double at_s = 0;
    std::vector<RankStats> accounts;
  };
  void keep_snapshot();
  const Snapshot& snapshot(std::size_t back) const {
    return snapshots_[(snapshots_taken_ - 1 - back) % snapshots_.size()];
  }
  Report slower(bool again);
  Report ended() const;
  Report compare_with_expected(double examples);

  const std::vector<std::string> hosts_;
  const Ask ask_;
  SpeedRule rule_;
  double clock_s_ = 0;                         // of all steps so far
  static constexpr std::size_t a_window = 10;  // snapshots
  std::array<Snapshot, 16> snapshots_;         // of the last windows, a tenth of one apart
  std::size_t snapshots_taken_ = 0;
  std::vector<RankStats> usual_;  // spent while the speed was near the reference
  std::optional<Expectation> expected_;
  bool compared_ = false, slower_than_expected_ = false, stays_slower_ = false;
};

}  // namespace ringtrain::monitor
