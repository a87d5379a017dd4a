#include "ringtrain/monitor/slowdown/speed_rule.hpp"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

namespace ringtrain::monitor {
namespace {

using Is = SlowdownConstants;

bool makes(const SpeedSpan& span, double seconds) {
  return span.seconds >= seconds &&
         span.steps >= Is::window_steps * std::max(1.0, seconds / Is::window_s);
}

}  // namespace

SpeedRule::Change SpeedRule::step(double seconds, double examples) {
  constexpr double slice_s = 1;
  open_ += {seconds, examples, 1};
  if (open_.seconds < slice_s) return Change::none;
  const SpeedSpan slice = std::exchange(open_, {});
  slices_[slices_seen_++ % most_slices] = slice;
  all_ += slice;
  since_window_ += slice;
  speed_ = last(Is::window_s).speed();
  if (speed_ == 0) return Change::none;
  if (makes(since_window_, Is::at_once_s)) learn();
  return reference_ > 0 ? judge(slice) : Change::none;
}

// Empty where there is too little so far.
SpeedSpan SpeedRule::last(double seconds) const {
  SpeedSpan sum;
  for (std::size_t back = 1; back <= std::min(slices_seen_, most_slices); ++back)
    if (makes(sum += slices_[(slices_seen_ - back) % most_slices], seconds)) return sum;
  return {};
}

// Since when most was lost against that speed: there a step of the speed is most likely.
SpeedSpan SpeedRule::fallen_below(double speed) const {
  SpeedSpan sum, fall;
  double most = 0;
  for (std::size_t back = 1; back <= std::min(slices_seen_, most_slices); ++back) {
    sum += slices_[(slices_seen_ - back) % most_slices];
    const double lost = speed * sum.seconds - sum.examples;
    if (lost <= most) continue;
    most = lost;
    fall = sum;
  }
  return fall;
}

// Half of what was lost is back, and it is slow no longer.
double SpeedRule::back() const { return std::max((1 + told_share_) / 2, below_) * reference_; }

// Within a slow-down, what is back counts: else a run that began slowly would never know better.
void SpeedRule::learn() {
  since_window_ = {};
  if (slow_ && speed_ < back()) return;
  if (windows_seen_++ % stride_ == 0) windows_[windows_kept_++] = speed_;
  if (windows_kept_ == most_windows) {
    for (std::size_t i = 0; 2 * i < most_windows; ++i) windows_[i] = windows_[2 * i];
    windows_kept_ /= 2;
    stride_ *= 2;
  }
  if (!makes(all_, 2 * Is::window_s)) return;
  auto sorted = windows_;
  const auto kept = std::span(sorted).first(windows_kept_);
  std::ranges::sort(kept);
  const double rank = std::ceil(Is::quantile * static_cast<double>(kept.size()));
  reference_ = kept[static_cast<std::size_t>(rank) - 1];
}

SpeedRule::Change SpeedRule::judge(const SpeedSpan& slice) {
  if (slow_ && follow(slice) == Change::ended) return Change::ended;
  below_for_ = speed_ < limit() ? below_for_ += slice : SpeedSpan{};
  if (!below_limit()) return Change::none;
  if (makes(below_for_, Is::window_s)) return tell(fallen_below(limit()), false);
  if (!slow_ && last(Is::at_once_s).speed() < Is::at_once * limit())
    return tell(fallen_below(limit()), true);
  const SpeedSpan longer = last(Is::long_s);
  const double least = below_ * told_share_ * reference_;
  return longer.steps > 0 && longer.speed() < least ? tell(longer, false) : Change::none;
}

SpeedRule::Change SpeedRule::tell(const SpeedSpan& fall, bool at_once) {
  const bool again = std::exchange(slow_, true);
  if (!again) {
    episode_ = worst_ = fall;
    lost_ = most_lost_ = 0;
  }
  fall_ = fall;
  told_share_ = compared_share_ = fall.speed() / reference_;
  settling_ = at_once;
  below_for_ = back_for_ = since_told_ = {};
  return again ? Change::again : Change::told;
}

// The true end is where most was lost. A share told at once is of a few seconds, or of one stall.
SpeedRule::Change SpeedRule::follow(const SpeedSpan& slice) {
  since_told_ += slice;
  episode_ += slice;
  if (settling_ && makes(since_told_, Is::window_s)) {
    settling_ = false;
    const double share = speed_ / reference_;
    if (share < below_) told_share_ = share;
    compared_share_ = share < below_ ? share : 1;
  }
  lost_ += back() * slice.seconds - slice.examples;
  if (lost_ >= most_lost_) {
    most_lost_ = lost_;
    worst_ = episode_;
  }
  back_for_ = speed_ >= back() ? back_for_ += slice : SpeedSpan{};
  if (makes(back_for_, Is::long_s))
    compared_share_ = std::max(compared_share_, back() / reference_);
  if (!makes(back_for_, Is::ended_s)) return Change::none;
  slow_ = false;
  told_share_ = compared_share_ = 1;
  fall_ = worst_;
  below_for_ = {};
  return Change::ended;
}

}  // namespace ringtrain::monitor
