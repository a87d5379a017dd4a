#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "train/rank_spread.hpp"
#include "train/slow_downs.hpp"

namespace ringtrain {

/// What rank 0 makes of all ranks' accounts: how their steps differ, and why they have become slow.
/// That of other ranks is idle. For the main thread.
class RankLedger {
 public:
  RankLedger() = default;
  /// `hosts` by rank; without one it is idle, too. What `ask` refers to outlives it.
  RankLedger(const std::vector<std::string>& hosts, SlowDowns::Ask ask) {
    if (!hosts.empty()) parts_.emplace(ask, RankSpread(hosts), SlowDowns(hosts, ask));
  }
  /// Since they were last told, if there is enough news.
  std::optional<PhasesOfRanks> differences() {
    return parts_ ? parts_->spread.look(parts_->ask()) : std::nullopt;
  }
  /// As SlowDowns.
  SlowDowns::News step(double seconds, double examples, bool saving) {
    return parts_ ? parts_->slow_downs.step(seconds, examples, saving) : SlowDowns::News{};
  }

 private:
  struct Parts {
    Parts(SlowDowns::Ask accounts, RankSpread s, SlowDowns d)
        : ask(std::move(accounts)), spread(std::move(s)), slow_downs(std::move(d)) {}
    SlowDowns::Ask ask;
    RankSpread spread;
    SlowDowns slow_downs;
  };
  std::optional<Parts> parts_;
};

}  // namespace ringtrain
