#pragma once
#include <span>
#include <string>
#include <vector>

#include "ringtrain/monitor/rank_stats.hpp"

namespace ringtrain {

/// Finds ranks that hold up the others: all wait for the slowest. Every 20 steps each rank's own
/// work a step is compared with the median of all ranks.
class Stragglers {
 public:
  static constexpr int window_steps = 20;
  static constexpr double tolerated = 1.5;  ///< times the median

  explicit Stragglers(int ranks);
  /// With what each rank has spent up to now; returns a sentence for each rank that has become slow
  /// or is no longer. `hosts` by rank.
  std::vector<std::string> look(std::span<const Spent> now, std::span<const std::string> hosts);

 private:
  std::vector<Spent> before_;
  std::vector<bool> told_;
};

}  // namespace ringtrain
