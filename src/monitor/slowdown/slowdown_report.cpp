#include "ringtrain/monitor/slowdown/slowdown_report.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "monitor/slowdown/slowdown_cause.hpp"
#include "ringtrain/metrics/log_text.hpp"

namespace ringtrain::monitor {
namespace {

constexpr double snapshot_s = 5, snapshots_s = 180, moment_s = 60;
constexpr std::size_t most_moments = 10'000;
constexpr double gradual_since_s = 15;  // what a gradual slow-down's cause is looked for in

std::string percent_less(double now, double reference) {
  return fmt::format("{:.0f} % less", 100 * (1 - now / reference));
}

}  // namespace

void SlowdownReporter::expect(Expectation expected) {
  detector_.expect(expected.step_s);
  expected_ = std::move(expected);
}

SlowdownReporter::Report SlowdownReporter::step(double seconds, double examples, bool saving) {
  if (snapshots_.empty()) keep_snapshot();
  const auto change = detector_.step(seconds, saving);
  seconds_ += seconds;
  if (seconds_ >= snapshots_.back().seconds + snapshot_s) keep_snapshot();
  const GradualSlowdown& gradual = detector_.gradual();
  if (gradual.bests() != std::exchange(bests_, gradual.bests()))
    best_ = Period{snapshot(gradual.stretch_seconds()), snapshots_.back()};
  switch (change) {
    case SlowdownDetector::Change::none:
      return {};
    case SlowdownDetector::Change::normal:
      remember_normal();
      return {};
    case SlowdownDetector::Change::slower:
      return slower(examples, saving);
    case SlowdownDetector::Change::recovered:
      begin_again();
      return {"slow_down_over", over(examples)};
    case SlowdownDetector::Change::settled:
      return {"slow_down_stays", settled(examples)};
  }
  return {};
}

std::string SlowdownReporter::settled(double examples) {
  const std::string rate =
      fmt::format("{:.1f} examples/s since {}", examples / detector_.recent_s(),
                  clock_time(ago(detector_.slow_for_s())));
  const double reference = examples / detector_.reference_s();
  has_settled_ = true;
  if (detector_.reference() == SlowdownDetector::Reference::expected)
    return fmt::format("{}: later runs are compared with that, not with the {:.1f} that {}", rate,
                       reference, expected_.source);
  normal_windows_ = 0;
  before_ = {};
  best_ = Period{snapshots_.front(), snapshots_.back()};
  return fmt::format("{}: what comes is compared with that from now on; before, it was {:.1f}",
                     rate, reference);
}

std::string SlowdownReporter::over(double examples) const {
  const std::string rate = fmt::format("{:.1f} examples/s again", examples / detector_.recent_s());
  if (const Recurrence::Times& times = detector_.times(); times.count > 0)
    return fmt::format("{}; since {}, it was slower {} times, {} in all", rate,
                       clock_time(ago(times.since_s)), times.count,
                       metrics::duration_words(times.slow_s));
  return fmt::format("{}, after {}", rate, metrics::duration_words(detector_.slow_for_s()));
}

void SlowdownReporter::keep_snapshot() {
  const Moment now{seconds_, now_()};
  snapshots_.push_back({now, ask_()});
  if (moments_.empty() || seconds_ >= moments_.back().seconds + moment_s) moments_.push_back(now);
  if (moments_.size() > most_moments) moments_.pop_front();
  const double needed_s = std::max(snapshots_s, 2 * detector_.gradual().stretch_seconds());
  while (snapshots_.size() > 3 && snapshots_[1].seconds < seconds_ - needed_s)
    snapshots_.pop_front();
}

const SlowdownReporter::Snapshot& SlowdownReporter::snapshot(double seconds_ago) const {
  auto found = snapshots_.rbegin();
  while (std::next(found) != snapshots_.rend() && found->seconds > seconds_ - seconds_ago) ++found;
  return *found;
}

// What ranks tell next is normal again.
void SlowdownReporter::begin_again() {
  if (normal_windows_ > 0) before_ = recent_;
  normal_windows_ = 0;
}

void SlowdownReporter::remember_normal() {
  constexpr int settling = 3;  // windows in which what ranks tell is still of their first steps
  constexpr int a_while = 30;  // windows, after which the time to compare with begins later
  recent_.end = ask_();
  if (detector_.sudden().ended() != std::exchange(sudden_ended_, detector_.sudden().ended()) &&
      normal_windows_ > 0)
    begin_again();  // it was not reported
  const bool settles = ++normal_windows_ <= settling;
  if (settles) recent_.begin = next_recent_ = recent_.end;
  if (settles || normal_windows_ % a_while != 0) return;
  recent_.begin = std::exchange(next_recent_, recent_.end);
}

SlowdownReporter::Report SlowdownReporter::slower(double examples, bool saving) {
  const double rate = examples / detector_.recent_s();
  const SlowdownCause cause = why();
  std::string text = fmt::format(
      "{:.1f} examples/s for {}, {}{}; {}", rate, metrics::duration_words(detector_.slow_for_s()),
      compared_with(examples), saving ? "; a save is in flight" : "", cause.text);
  if (const Recurrence::Times& times = detector_.times(); times.count > 0)
    text += fmt::format(
        "; it comes and goes, {} times since {}: until there was none for {:.0f} min, only "
        "what is a quarter worse, or lasts for {:.0f} min, is reported",
        times.count, clock_time(ago(times.since_s)), times.gone_s / 60, times.stays_s / 60);
  return {"slow_down", std::move(text), cause.links};
}

std::string SlowdownReporter::compared_with(double examples) const {
  const double reference = examples / detector_.reference_s();
  const std::string less = percent_less(examples / detector_.recent_s(), reference);
  switch (detector_.reference()) {
    case SlowdownDetector::Reference::recent:
      return fmt::format("{} than the usual {:.1f}", less, reference);
    case SlowdownDetector::Reference::expected:
      return fmt::format("{} than the {:.1f} that {}", less, reference, expected_.source);
    case SlowdownDetector::Reference::stalls:
      return fmt::format(
          "{} than the best {:.1f}; {} stalls took {} of the last {}, other steps are fast", less,
          reference, detector_.stalls().stalls(),
          metrics::duration_words(detector_.stalls().lost_s()),
          metrics::duration_words(detector_.stalls().stretch_s()));
    case SlowdownDetector::Reference::best:
      break;
  }
  const auto now = now_();
  return fmt::format("{} than the {:.1f} of {} to {}; falling since {}", less, reference,
                     clock_time(best_ ? best_->begin.time : now),
                     clock_time(best_ ? best_->end.time : now),
                     clock_time(ago(detector_.gradual().falling_for_s())));
}

// A gradual slow-down is compared with the time of its reference, a sudden one with what was just
// before or, where it follows another one, with what was before that. Where nothing has changed
// since then, it may have come little by little, too.
SlowdownCause SlowdownReporter::why() const {
  switch (detector_.reference()) {
    case SlowdownDetector::Reference::recent: {
      const AccountsSpan since{recent_.end, ask_()};
      SlowdownCause cause =
          explain_slowdown(can_explain(recent_, since) ? recent_ : before_, since, hosts_);
      if (cause.found || !best_) return cause;
      SlowdownCause by_best =
          explain_slowdown({best_->begin.accounts, best_->end.accounts}, since, hosts_);
      if (!by_best.found) return cause;
      by_best.text = fmt::format("since the best time, {} to {}, {}", clock_time(best_->begin.time),
                                 clock_time(best_->end.time), by_best.text);
      return by_best;
    }
    case SlowdownDetector::Reference::best:
      return best_ ? explain_slowdown({best_->begin.accounts, best_->end.accounts},
                                      {snapshot(gradual_since_s).accounts, ask_()}, hosts_)
                   : explain_slowdown({}, {}, hosts_);
    case SlowdownDetector::Reference::stalls:
      return best_ ? explain_slowdown({best_->begin.accounts, best_->end.accounts},
                                      {snapshot(detector_.slow_for_s()).accounts, ask_()}, hosts_)
                   : explain_slowdown({}, {}, hosts_);
    case SlowdownDetector::Reference::expected:
      break;
  }
  return explain_slower_than_expected(
      best_ ? AccountsSpan{best_->begin.accounts, best_->end.accounts} : AccountsSpan{},
      expected_.phases, hosts_);
}

std::optional<SlowdownReporter::BestPace> SlowdownReporter::best() const {
  if (detector_.gradual().best_s() == 0) return std::nullopt;
  return BestPace{detector_.gradual().best_s(),
                  mean_step_of(0, {best_->begin.accounts, best_->end.accounts})};
}

SlowdownReporter::Clock::time_point SlowdownReporter::ago(double seconds) const {
  const auto duration = [](double s) {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(s));
  };
  const double then = seconds_ - seconds;
  auto last = moments_.rbegin();  // before it
  while (last != moments_.rend() && last->seconds > then) ++last;
  if (last == moments_.rend()) return moments_.empty() ? now_() : moments_.front().time;
  // Between two of them something else than steps may have taken time.
  const auto end = last == moments_.rbegin() ? now_() : std::prev(last)->time;
  return std::min(end, last->time + duration(then - last->seconds));
}

std::string SlowdownReporter::clock_time(Clock::time_point time) const {
  const std::string then = metrics::timestamp(time), now = metrics::timestamp(now_());
  return then.substr(0, 10) == now.substr(0, 10) ? then.substr(11, 5) : then.substr(0, 16);
}

}  // namespace ringtrain::monitor
