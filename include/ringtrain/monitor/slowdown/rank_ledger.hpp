#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ringtrain/monitor/slowdown/imbalance_detector.hpp"
#include "ringtrain/monitor/slowdown/slowdown_report.hpp"

namespace ringtrain::monitor {

/// What rank 0 makes of all ranks' accounts: how their steps differ, and why they have become slow.
/// That of other ranks is idle. For the main thread.
class RankLedger {
 public:
  RankLedger() = default;
  /// `hosts` by rank; without one it is idle, too. What `ask` refers to outlives it.
  RankLedger(const std::vector<std::string>& hosts, const SlowdownReporter::Ask& ask) {
    if (!hosts.empty()) parts_.emplace(hosts, ask);
  }
  /// Since they were last told, if there is enough news.
  std::optional<metrics::PhaseSpread> differences() {
    if (!parts_) return std::nullopt;
    auto window = parts_->imbalance.compare(parts_->ask());
    return window ? std::optional(std::move(window->spread)) : std::nullopt;
  }
  /// As SlowdownReporter, likewise the next three.
  SlowdownReporter::Report step(double seconds, double examples, bool saving) {
    return parts_ ? parts_->slowdowns.step(seconds, examples, saving) : SlowdownReporter::Report{};
  }

  void expect(SlowdownReporter::Expectation expected) {
    if (parts_) parts_->slowdowns.expect(std::move(expected));
  }
  std::optional<SlowdownReporter::BestPace> best() const {
    return parts_ ? parts_->slowdowns.best() : std::nullopt;
  }
  bool has_settled() const { return parts_ && parts_->slowdowns.has_settled(); }

 private:
  struct Parts {
    Parts(const std::vector<std::string>& hosts, const SlowdownReporter::Ask& accounts)
        : ask(accounts), imbalance(hosts, ImbalanceDetector::logged), slowdowns(hosts, accounts) {}
    SlowdownReporter::Ask ask;
    ImbalanceDetector imbalance;
    SlowdownReporter slowdowns;
  };
  std::optional<Parts> parts_;
};

}  // namespace ringtrain::monitor
