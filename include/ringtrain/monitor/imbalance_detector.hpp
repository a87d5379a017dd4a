#pragma once
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ringtrain/metrics/records.hpp"
#include "ringtrain/monitor/rank_stats.hpp"

namespace ringtrain::monitor {

/// Compares the ranks' steps, window by window, and finds slow ranks: those that hold up the
/// others, which wait for the slowest. Belongs to one thread.
class ImbalanceDetector {
 public:
  struct Settings {
    std::uint64_t window_steps = 0;  ///< of each rank, at least
    Tolerance tolerance;
  };
  /// What a line of the log needs.
  static constexpr Settings logged{.window_steps = 5,
                                   .tolerance = {.times_median = 1.3, .part_of_step = 0.05}};
  /// What an event needs.
  static constexpr Settings reported{.window_steps = 20, .tolerance = {.times_median = 1.5}};

  struct Window {
    metrics::PhaseSpread spread;
    std::vector<std::string>
        events;  ///< a sentence for each rank that became slow or keeps up again
  };

  /// `hosts` by rank.
  ImbalanceDetector(std::vector<std::string> hosts, const Settings& settings)
      : hosts_(std::move(hosts)), settings_(settings), ranks_(hosts_.size()) {}
  /// `now` is what the ranks have spent up to now, by rank, maybe of none. Returns the window since
  /// the last one; nothing while a rank has too few steps in it, or where there are not two ranks.
  /// Ranks that were never heard of are left out.
  std::optional<Window> compare(std::span<const RankStats> now);

 private:
  struct Rank {
    PhaseTotals before;
    bool slow = false;
  };

  const std::vector<std::string> hosts_;
  const Settings settings_;
  std::vector<Rank> ranks_;
};

}  // namespace ringtrain::monitor
