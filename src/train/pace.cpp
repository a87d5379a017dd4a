#include "train/pace.hpp"

#include <algorithm>
#include <utility>

#include "ringtrain/train/statistics.hpp"

namespace ringtrain {
namespace {

constexpr double least_window_s = 0.5, most_excused_s = 30;
constexpr int window_steps = 2;
constexpr std::size_t least_usual = 10, most_usual = 240;  // windows
constexpr std::size_t slow_windows = 6, back_windows = 3;
constexpr std::size_t most_recent = 10;  // windows, which make Pace::slow_s and Pace::slow_steps
constexpr double back_s = 3;             // as usual, and a slow time is over
constexpr int back_steps = 10;
constexpr double noise = 4;  // deviations from the usual that are none

}  // namespace

Pace::News Pace::step(double seconds, bool excused) {
  if (warm_up_ > 0) {
    --warm_up_;
    return News::none;
  }
  open_.seconds += seconds;
  ++open_.steps;
  open_.excused = open_.excused || excused;
  if (open_.seconds < least_window_s || open_.steps < window_steps) return News::none;
  return judge(std::exchange(open_, {}));
}

double Pace::usual_s() const { return spread_of({usual_.begin(), usual_.end()}).median; }

double Pace::limit_s() const {
  const Spread usual = spread_of({usual_.begin(), usual_.end()});
  return std::max(tolerated * usual.median, usual.median + noise * usual.deviation);
}

Pace::News Pace::judge(const Stretch& window) {
  if (slow_) slow_for_s_ += window.seconds;
  if (excuse(window)) return News::none;
  remember(window);
  return slow_ ? judge_slow() : judge_usual();
}

void Pace::remember(const Stretch& window) {
  recent_.push_back(window);
  if (recent_.size() <= most_recent) return;
  if (!slow_) usual_.push_back(recent_.front().mean());
  recent_.pop_front();
  if (usual_.size() > most_usual) usual_.pop_front();
}

Pace::News Pace::judge_usual() {
  const double limit = limit_s();
  if (usual_.size() < least_usual || recent_.back().mean() <= limit)
    return std::exchange(was_usual_, true) ? News::usual : News::none;
  was_usual_ = false;
  if (!slower_than(limit)) return News::none;
  slow_ = true;
  told_s_ = lately_s();
  slow_for_s_ = lately_.seconds;
  return News::slow;
}

// Back is who is nearer to the usual than to the limit.
Pace::News Pace::judge_slow() {
  if (within((usual_s() + limit_s()) / 2)) {
    slow_ = false;
    slow_for_s_ -= lately_.seconds;
    recent_.clear();
    return News::recovered;
  }
  if (!slower_than(tolerated * told_s_)) return News::none;
  told_s_ = lately_s();
  return News::slow;
}

// What does not end is no excuse.
bool Pace::excuse(const Stretch& window) {
  excused_s_ = window.excused ? excused_s_ + window.seconds : 0;
  return window.excused && excused_s_ < most_excused_s;
}

// On the whole, in most windows, and from the first of them on.
bool Pace::slower_than(double limit) {
  const std::size_t windows = look_back(slow_s, slow_steps, slow_windows);
  if (windows == 0 || lately_s() <= limit) return false;
  const auto first = recent_.end() - static_cast<std::ptrdiff_t>(windows);
  const auto is_slow = [=](const Stretch& w) { return w.mean() > limit; };
  const auto slow = static_cast<std::size_t>(std::count_if(first, recent_.end(), is_slow));
  return is_slow(*first) && 4 * slow >= 3 * windows;
}

bool Pace::within(double limit) {
  return look_back(back_s, back_steps, back_windows) > 0 && lately_s() <= limit;
}

std::size_t Pace::look_back(double seconds, int steps, std::size_t windows) {
  lately_ = {};
  for (std::size_t count = 1; count <= recent_.size(); ++count) {
    const Stretch& window = recent_[recent_.size() - count];
    lately_.seconds += window.seconds;
    lately_.steps += window.steps;
    if (lately_.seconds >= seconds && lately_.steps >= steps && count >= windows) return count;
  }
  return 0;
}

}  // namespace ringtrain
