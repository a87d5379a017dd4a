#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ringtrain {

/// What a rank has spent so far, in seconds of all its steps; what it waited for others is not in.
struct Work {
  static constexpr std::array<std::string_view, 5> kinds = {"data", "copy", "forward", "backward",
                                                            "update"};
  std::uint64_t steps = 0;
  std::array<double, kinds.size()> seconds{};  ///< by kind
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
  std::vector<std::string> look(std::span<const Work> now, std::span<const std::string> hosts);

 private:
  std::string slow(std::size_t rank, const std::vector<Work>& spent, double median_s) const;

  std::vector<Work> before_;
  std::vector<bool> told_;
};

}  // namespace ringtrain
