#include <algorithm>
#include <cmath>
#include <utility>

#include "ringtrain/base/statistics.hpp"
#include "ringtrain/monitor/slowdown/slowdown_detector.hpp"

namespace ringtrain::monitor {
namespace {

constexpr std::size_t least_reference = 10, most_reference = 240;  // windows
constexpr std::size_t sudden_windows = 6, back_windows = 3;
constexpr std::size_t most_undecided = 10;  // windows, which make sudden_s and sudden_steps
constexpr double back_s = 3;                // as before, and a slow-down is over
constexpr int back_steps = 10;
constexpr double noise = 4;  // deviations from the reference that are none

}  // namespace

double SuddenSlowdown::reference_s() const {
  return spread_of({reference_.begin(), reference_.end()}).median;
}

double SuddenSlowdown::limit_s() const {
  const Spread spread = spread_of({reference_.begin(), reference_.end()});
  return std::max(SlowdownDetector::tolerated * spread.median,
                  spread.median + noise * spread.deviation);
}

PaceChange SuddenSlowdown::add(const PaceWindow& window) {
  if (slow_) slow_for_s_ += window.seconds;
  undecided_.push_back(window);
  if (undecided_.size() > most_undecided) {
    if (!slow_) reference_.push_back(undecided_.front().step_s());
    undecided_.pop_front();
    if (reference_.size() > most_reference) reference_.pop_front();
  }
  return slow_ ? judge_slow() : judge_normal();
}

void SuddenSlowdown::accept(double step_s) {
  slow_ = false;
  reference_.assign(least_reference, step_s);
  undecided_.clear();
}

PaceChange SuddenSlowdown::judge_normal() {
  const double limit = limit_s();
  if (reference_.size() < least_reference || undecided_.back().step_s() <= limit)
    return std::exchange(was_normal_, true) ? PaceChange::normal : PaceChange::none;
  was_normal_ = false;
  if (!slower_than(limit)) return PaceChange::none;
  slow_ = true;
  reported_s_ = recent_s();
  slow_for_s_ = last_.seconds;
  return PaceChange::slower;
}

// Back means nearer to the reference than to the limit.
PaceChange SuddenSlowdown::judge_slow() {
  if (back_within((reference_s() + limit_s()) / 2)) {
    slow_ = false;
    ++ended_;
    slow_for_s_ -= last_.seconds;
    undecided_.clear();
    return PaceChange::recovered;
  }
  if (!slower_than(SlowdownDetector::tolerated * reported_s_)) return PaceChange::none;
  reported_s_ = recent_s();
  return PaceChange::slower;
}

// On the whole, in most windows, and from the first of them on.
bool SuddenSlowdown::slower_than(double limit) {
  const std::size_t windows =
      look_back(SlowdownDetector::sudden_s, SlowdownDetector::sudden_steps, sudden_windows);
  if (windows == 0 || recent_s() <= limit) return false;
  const auto first = undecided_.end() - static_cast<std::ptrdiff_t>(windows);
  const auto is_slow = [=](const PaceWindow& w) { return w.step_s() > limit; };
  const auto slow = static_cast<std::size_t>(std::count_if(first, undecided_.end(), is_slow));
  return is_slow(*first) && 4 * slow >= 3 * windows;
}

bool SuddenSlowdown::back_within(double limit) {
  return look_back(back_s, back_steps, back_windows) > 0 && recent_s() <= limit;
}

std::size_t SuddenSlowdown::look_back(double seconds, int steps, std::size_t windows) {
  last_ = {};
  for (std::size_t count = 1; count <= undecided_.size(); ++count) {
    const PaceWindow& window = undecided_[undecided_.size() - count];
    last_.seconds += window.seconds;
    last_.steps += window.steps;
    if (last_.seconds >= seconds && last_.steps >= steps && count >= windows) return count;
  }
  return 0;
}

}  // namespace ringtrain::monitor
