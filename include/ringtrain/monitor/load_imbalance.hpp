#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ringtrain/metrics/records.hpp"
#include "ringtrain/monitor/rank_stats.hpp"

namespace ringtrain::monitor {

/// Compares the ranks' steps, from one look to the next.
class LoadImbalance {
 public:
  static constexpr std::uint64_t least_steps = 5;  ///< of each rank, between two looks that tell
  static constexpr double tolerated = 1.3;         ///< times the median of own work

  /// `hosts` by rank.
  explicit LoadImbalance(std::vector<std::string> hosts) : hosts_(std::move(hosts)) {}
  /// Since the last look that told something; nothing while a rank has too few steps since then, or
  /// where there are not two ranks. Ranks that were never heard of are left out.
  std::optional<metrics::PhaseSpread> look(std::span<const RankStats> now);

 private:
  std::string slowest(const metrics::PhaseSpread& phases, std::span<const int> ranks,
                      std::span<const metrics::PhaseSeconds> steps) const;

  const std::vector<std::string> hosts_;
  std::vector<PhaseTotals> before_;
};

/// Finds ranks that hold up the others: all wait for the slowest. Every 20 steps each rank's own
/// work a step is compared with the median of all ranks.
class Stragglers {
 public:
  static constexpr int window_steps = 20;
  static constexpr double tolerated = 1.5;  ///< times the median

  explicit Stragglers(int ranks);
  /// With what each rank has spent up to now; returns a sentence for each rank that has become slow
  /// or is no longer. `hosts` by rank.
  std::vector<std::string> look(std::span<const PhaseTotals> now,
                                std::span<const std::string> hosts);

 private:
  std::vector<PhaseTotals> before_;
  std::vector<bool> told_;
};

}  // namespace ringtrain::monitor
