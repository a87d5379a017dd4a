#include "ringtrain/monitor/slowdown/slowdown_detector.hpp"

#include <algorithm>
#include <utility>

namespace ringtrain::monitor {

// --- those that come and go ---

namespace {

constexpr std::size_t most_alone = 3;
constexpr double alone_within_s = 3600;
// Each time that it comes again after it was gone, or stays, the next report of it wants more.
constexpr double gone_s = 600, most_gone_s = 4 * 3600;
constexpr double stays_s = 300, most_stays_s = 1800;  // what lasts so long does not come and go
constexpr double more = 2;
constexpr double remembered_s = 24 * 3600;  // once it is gone

}  // namespace

PaceChange Recurrence::filter(PaceChange change, double recent_s, double seconds) {
  now_s_ += seconds;
  if (slow_ && !recent_.empty()) {
    recent_.back().slow_s += seconds;
    all_.slow_s += seconds;
  }
  if (change == PaceChange::slower && !slow_) {
    recent_.push_back({now_s_});
    ++all_.count;
  }
  if (change == PaceChange::slower || change == PaceChange::recovered) {
    const bool was_slow = std::exchange(slow_, change == PaceChange::slower);
    if (slow_ != was_slow) changed_s_ = now_s_;
  }
  if (recurring_) return filter_recurring(change, recent_s);
  if (!slow_ && now_s_ - changed_s_ >= remembered_s) recurred_ = false;
  while (!recent_.empty() && recent_.front().begin_s < now_s_ - alone_within_s) recent_.pop_front();
  times_ = {};
  if (change == PaceChange::slower && (recurred_ || recent_.size() >= most_alone))
    begin_recurring(recent_s);
  return change;
}

void Recurrence::begin_recurring(double recent_s) {
  if (!std::exchange(recurred_, true)) {
    all_ = {.count = static_cast<int>(recent_.size())};
    for (const Episode& episode : recent_) all_.slow_s += episode.slow_s;
    first_s_ = recent_.front().begin_s;
    gone_s_ = gone_s;
    stays_s_ = stays_s;
  } else {
    gone_s_ = std::min(more * gone_s_, most_gone_s);
  }
  recurring_ = true;
  worst_s_ = recent_s;
  times_ = all();
}

PaceChange Recurrence::filter_recurring(PaceChange change, double recent_s) {
  times_ = {};
  const double since_change_s = now_s_ - changed_s_;
  if (change == PaceChange::slower && recent_s > SlowdownDetector::tolerated * worst_s_) {
    worst_s_ = recent_s;
    times_ = all();
    return change;
  }
  if (change == PaceChange::recovered && std::exchange(stays_, false)) return change;
  const bool is_known = recent_s > 0;  // while nothing is judged, it is not
  if (slow_ && is_known && !stays_ && since_change_s >= stays_s_) {
    stays_ = true;
    worst_s_ = recent_s;
    stays_s_ = std::min(more * stays_s_, most_stays_s);
    return PaceChange::slower;
  }
  if (!slow_ && since_change_s >= gone_s_) {
    times_ = all();
    recurring_ = false;
    recent_.clear();
    return PaceChange::recovered;
  }
  return change == PaceChange::normal ? change : PaceChange::none;
}

Recurrence::Times Recurrence::all() const {
  return {.count = all_.count,
          .since_s = now_s_ - first_s_,
          .slow_s = all_.slow_s,
          .gone_s = gone_s_,
          .stays_s = stays_s_};
}

// --- all of it ---

namespace {

constexpr double least_window_s = 0.5, most_excused_s = 30;
constexpr int window_steps = 2;

}  // namespace

PaceChange SlowdownDetector::step(double seconds, bool excused) {
  if (warm_up_ > 0) {
    --warm_up_;
    return Change::none;
  }
  open_.seconds += seconds;
  ++open_.steps;
  open_is_excused_ = open_is_excused_ || excused;
  if (open_.seconds < least_window_s || open_.steps < window_steps) return Change::none;
  const PaceWindow window = std::exchange(open_, {});
  if (is_excused(window.seconds, std::exchange(open_is_excused_, false))) return Change::none;
  judged_s_ += window.seconds;
  return judge(window);
}

// What does not end is no excuse.
bool SlowdownDetector::is_excused(double seconds, bool excused) {
  excused_s_ = excused ? excused_s_ + seconds : 0;
  return excused && excused_s_ < most_excused_s;
}

// All of them see each window. What two of them find at once is reported one after the other.
PaceChange SlowdownDetector::judge(const PaceWindow& window) {
  const bool was_slow = sudden_.slow();
  const Change sudden = judge_sudden(window);
  const bool is_sudden = was_slow || sudden_.slow();
  const Change gradual = judge_gradual(window, !is_sudden);
  const Change stalls = judge_stalls(window, !is_sudden && !gradual_.slow());
  const auto is_reported = [](Change change) {
    return change != Change::none && change != Change::normal;
  };
  const auto look_at = [&](Reference reference, Change change, const auto& of,
                           const Recurrence& ones) {
    if (!is_reported(change)) return;
    // That it no longer comes and goes is found some time after it did.
    const bool gone = change == Change::recovered && ones.times().count > 0;
    reports_.push_back({change, reference, of.reference_s(),
                        gone ? sudden_.reference_s() : of.recent_s(), of.slow_for_s(),
                        ones.times()});
  };
  look_at(Reference::recent, sudden, sudden_, sudden_ones_);
  look_at(Reference::best, gradual, gradual_, gradual_ones_);
  look_at(Reference::stalls, stalls, stalls_, stalling_ones_);
  judge_expected();
  if (reports_.empty()) return sudden;
  last_ = reports_.front();
  reports_.pop_front();
  return last_.change;
}

PaceChange SlowdownDetector::judge_sudden(const PaceWindow& window) {
  const PaceChange change = sudden_.add(window);
  return sudden_ones_.filter(change, sudden_.recent_s(), window.seconds);
}

PaceChange SlowdownDetector::judge_gradual(const PaceWindow& window, bool judge) {
  const PaceChange change = gradual_.add(window, judge);
  if (change != PaceChange::settled)
    return gradual_ones_.filter(change, gradual_.recent_s(), window.seconds);
  sudden_.accept(gradual_.recent_s());
  stalls_ = {};
  sudden_ones_ = gradual_ones_ = stalling_ones_ = {};
  return change;
}

PaceChange SlowdownDetector::judge_stalls(const PaceWindow& window, bool judge) {
  const PaceChange change = stalls_.add(window, judge);
  return stalling_ones_.filter(change, stalls_.recent_s(), window.seconds);
}

// Once, of the first two minutes that can be judged; when the run becomes as fast after all; and
// when it has been slower for so long that it will stay so.
void SlowdownDetector::judge_expected() {
  const double best_s = gradual_.best_s();
  if (!expected_s_ || best_s == 0) return;
  const auto report = [&](Change change) {
    reports_.push_back({change, Reference::expected, *expected_s_, best_s, judged_s_, {}});
  };
  if (!std::exchange(expected_judged_, true)) {
    slower_than_expected_ = best_s > tolerated * *expected_s_;
    if (slower_than_expected_) report(Change::slower);
  } else if (slower_than_expected_ && best_s <= (1 + tolerated) / 2 * *expected_s_) {
    slower_than_expected_ = false;
    report(Change::recovered);
  } else if (slower_than_expected_ && judged_s_ >= settled_s) {
    slower_than_expected_ = false;
    report(Change::settled);
  }
}

}  // namespace ringtrain::monitor
