#include "ringtrain/monitor/slowdown/slowdown_report.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "monitor/slowdown/slowdown_cause.hpp"
#include "ringtrain/metrics/log_text.hpp"

namespace ringtrain::monitor {

using Is = SlowdownConstants;

SlowdownReporter::SlowdownReporter(double below, std::vector<std::string> hosts, Ask ask)
    : hosts_(std::move(hosts)), ask_(std::move(ask)), rule_(below), usual_(hosts_.size()) {
  for (Snapshot& snapshot : snapshots_) snapshot.accounts.reserve(hosts_.size());
}

SlowdownReporter::Report SlowdownReporter::step(double seconds, double examples, double saving_s) {
  const auto change = rule_.step(std::max(0.0, seconds - saving_s), examples);
  clock_s_ += seconds;
  if (snapshots_taken_ == 0 || clock_s_ >= snapshot(0).at_s + Is::window_s / a_window)
    keep_snapshot();
  if (change == SpeedRule::Change::ended) return ended();
  if (change != SpeedRule::Change::none) return slower(change == SpeedRule::Change::again);
  const bool has_phases = usual_[0].spent.steps > 0 || snapshot(0).accounts.empty();
  return expected_ && reached() && has_phases ? compare_with_expected(examples) : Report{};
}

// Of a window near the reference the first tenth: a fall that began within it is not seen yet.
void SlowdownReporter::keep_snapshot() {
  Snapshot& next = snapshots_[snapshots_taken_++ % snapshots_.size()];
  next.at_s = clock_s_;
  ask_(next.accounts);
  const bool usual = !rule_.slow() && rule_.share().value_or(1) >= Is::usual;
  if (!usual || snapshots_taken_ <= a_window + 2) return;
  const auto &begin = snapshot(a_window + 1).accounts, &end = snapshot(a_window).accounts;
  for (std::size_t r = 0; r < std::min({begin.size(), end.size(), usual_.size()}); ++r)
    if (end[r].spent.steps > begin[r].spent.steps) usual_[r] += between(begin[r], end[r]);
}

std::optional<metrics::SpeedShare> SlowdownReporter::speed() const {
  if (!rule_.share()) return std::nullopt;
  return metrics::SpeedShare{*rule_.share(), rule_.reference(), rule_.slow()};
}

SlowdownReporter::Report SlowdownReporter::slower(bool again) {
  const SpeedSpan& fall = rule_.fall();
  std::size_t since = 1;
  while (since < a_window && since + 1 < snapshots_taken_ &&
         snapshot(since + 1).at_s >= clock_s_ - fall.seconds)
    ++since;
  std::vector<RankStats> now;
  ask_(now);
  const std::vector<RankStats>& begin = snapshot(since).accounts;
  now.resize(std::min(now.size(), begin.size()));
  for (std::size_t r = 0; r < now.size(); ++r) now[r] = between(begin[r], now[r]);
  SlowdownCause cause = explain_slowdown(usual_, now, hosts_);
  return {"slow_down",
          fmt::format("{:.1f} examples/s for {}, {:.0f} % less than the usual {:.1f}{}; {}",
                      fall.speed(), metrics::duration_words(fall.seconds),
                      100 * (1 - fall.speed() / rule_.reference()), rule_.reference(),
                      again ? ", a further fall" : "", cause.text),
          cause.links};
}

SlowdownReporter::Report SlowdownReporter::ended() const {
  const SpeedSpan& fall = rule_.fall();
  const double reference = rule_.reference();
  return {"slow_down_over",
          fmt::format("{:.1f} examples/s again; {} at {} examples/s, cost {}",
                      *rule_.share() * reference, metrics::duration_words(fall.seconds),
                      metrics::share_words(fall.speed() / reference, reference),
                      metrics::duration_words(fall.seconds - fall.examples / reference))};
}

SlowdownReporter::Report SlowdownReporter::compare_with_expected(double examples) {
  const double expected = examples / expected_->step_s, now = rule_.reference();
  const bool slower = now < rule_.below() * expected;
  if (!std::exchange(compared_, true)) {
    slower_than_expected_ = slower;
    if (slower)
      return {"slow_down",
              fmt::format("{:.1f} examples/s, {:.0f} % less than the {:.1f} that {}; {}", now,
                          100 * (1 - now / expected), expected, expected_->source,
                          explain_slower_run(reached()->phases, expected_->phases, hosts_[0]))};
  } else if (slower_than_expected_ && clock_s_ >= Is::stays_s) {
    slower_than_expected_ = false;
    stays_slower_ = slower;
    if (slower)
      return {"slow_down_stays",
              fmt::format("{:.1f} examples/s for {}: later runs are compared with that, not with "
                          "the {:.1f} that {}",
                          now, metrics::duration_words(clock_s_), expected, expected_->source)};
  }
  return {};
}

std::optional<SlowdownReporter::Reached> SlowdownReporter::reached() const {
  if (rule_.reference() == 0) return std::nullopt;
  Reached reached{rule_.reference(), {}};
  if (usual_[0].spent.steps > 0) reached.phases = mean_step({}, usual_[0].spent);
  return reached;
}

}  // namespace ringtrain::monitor
