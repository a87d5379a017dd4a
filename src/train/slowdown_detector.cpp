#include "train/slowdown_detector.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "ringtrain/train/statistics.hpp"

namespace ringtrain {
namespace {

constexpr double least_window_s = 0.5, most_excused_s = 30;
constexpr int window_steps = 2;
constexpr std::size_t least_recent = 10, most_recent = 240;  // windows
constexpr std::size_t sudden_windows = 6, gradual_windows = 6, back_windows = 3;
constexpr std::size_t most_undecided = 10;  // windows, which make sudden_s and sudden_steps
constexpr double back_s = 3;                // like the reference, and a slow-down is over
constexpr int back_steps = 10;
constexpr double noise = 4;  // deviations from the recent pace that are none
// Half a minute's median differs by chance from that of other minutes. With this allowance a
// slow-down is reported when it reaches a quarter, not some time afterwards.
constexpr double allowance = 1.04;
constexpr double block_noise = 8;  // deviations of blocks from those beside them that are none
constexpr std::size_t least_differences = 5;

constexpr double block_s = 30, began_to_fall = 1.1;
constexpr std::size_t block_windows = 10, back_blocks = 4, least_settled = 12;
constexpr double kept_blocks_s = SlowdownDetector::settled_s;
constexpr double stable = 1.15, no_trend = 1.05;  // what settled blocks differ by

double upper_median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace

SlowdownDetector::Change SlowdownDetector::step(double seconds, bool excused) {
  if (warm_up_ > 0) {
    --warm_up_;
    return Change::none;
  }
  open_.seconds += seconds;
  ++open_.steps;
  open_.excused = open_.excused || excused;
  if (open_.seconds < least_window_s || open_.steps < window_steps) return Change::none;
  return judge(std::exchange(open_, {}));
}

SlowdownDetector::Change SlowdownDetector::judge(const Stretch& window) {
  if (slow_) slow_for_s_ += window.seconds;
  falling_for_s_ += window.seconds;
  since_settling_s_ += window.seconds;
  if (is_excused(window)) return Change::none;
  remember(window);
  const bool ended_block = add_to_block(window);
  if (slow_) return judge_slow(ended_block);
  if (ended_block && is_back_from_settling()) return Change::recovered;
  return judge_normal();
}

// What does not end is no excuse.
bool SlowdownDetector::is_excused(const Stretch& window) {
  excused_s_ = window.excused ? excused_s_ + window.seconds : 0;
  return window.excused && excused_s_ < most_excused_s;
}

// The last windows are not among the recent ones until it is known that they are not slow.
void SlowdownDetector::remember(const Stretch& window) {
  last_windows_.push_back(window);
  if (++undecided_ > most_undecided) {
    if (!slow_) recent_windows_.push_back(last_windows_[last_windows_.size() - undecided_].mean());
    --undecided_;
    if (recent_windows_.size() > most_recent) recent_windows_.pop_front();
  }
  const std::size_t needed = look_back(gradual_s, gradual_steps, gradual_windows);
  while (needed > 0 && last_windows_.size() > std::max(needed, most_undecided + 1))
    last_windows_.pop_front();
}

bool SlowdownDetector::add_to_block(const Stretch& window) {
  block_is_slow_ = block_is_slow_ || slow_;
  block_.push_back(window.mean());
  block_s_ += window.seconds;
  if (block_s_ < block_s || block_.size() < block_windows) return false;
  last_blocks_.push_back({upper_median(std::exchange(block_, {})), block_s_, block_is_slow_});
  last_blocks_s_ += std::exchange(block_s_, 0);
  block_is_slow_ = slow_;
  while (last_blocks_s_ - last_blocks_.front().seconds >= kept_blocks_s) {
    last_blocks_s_ -= last_blocks_.front().seconds;
    last_blocks_.pop_front();
  }
  block_deviation_ = block_deviation();
  const Block& last = last_blocks_.back();
  if (last.median_s < best_s_ && !last.slow) {
    best_s_ = last.median_s;
    ++bests_;
  }
  if (last.median_s <= began_to_fall * best_s_) falling_for_s_ = 0;
  return true;
}

double SlowdownDetector::stretch(std::size_t blocks, std::size_t before) const {
  std::vector<double> medians;
  for (std::size_t i = before; i < last_blocks_.size() && i < before + blocks; ++i)
    medians.push_back(last_blocks_[last_blocks_.size() - 1 - i].median_s);
  return upper_median(std::move(medians));
}

// Between neighbours, so that a trend counts for nothing, and without those of a slow-down. For
// normal noise, 1.05 times the median difference is the deviation. A few say nothing.
double SlowdownDetector::block_deviation() const {
  std::vector<double> differences;
  for (std::size_t i = 1; i < last_blocks_.size(); ++i)
    if (const Block& a = last_blocks_[i - 1], &b = last_blocks_[i]; !a.slow && !b.slow)
      differences.push_back(std::abs(b.median_s / a.median_s - 1));
  if (differences.size() < least_differences) return 0;
  return 1.05 * upper_median(std::move(differences));
}

double SlowdownDetector::recent_median_s() const {
  return spread_of({recent_windows_.begin(), recent_windows_.end()}).median;
}

double SlowdownDetector::sudden_limit_s() const {
  const Spread recent = spread_of({recent_windows_.begin(), recent_windows_.end()});
  return std::max(tolerated * recent.median, recent.median + noise * recent.deviation);
}

SlowdownDetector::Change SlowdownDetector::judge_normal() {
  const double noisy = 1 + block_noise * block_deviation_;
  if (gradually_slower_than(std::max(tolerated / allowance, noisy) * best_s_))
    return report_slow(Reference::best, best_s_);
  if (expected_s_ && *expected_s_ < best_s_ &&
      gradually_slower_than(std::max(tolerated, noisy) * *expected_s_))
    return report_slow(Reference::expected, *expected_s_);
  const double limit_s = sudden_limit_s();
  if (recent_windows_.size() < least_recent || last_windows_.back().mean() <= limit_s)
    return std::exchange(was_normal_, true) ? Change::normal : Change::none;
  was_normal_ = false;
  return slower_than(limit_s) ? report_slow(Reference::recent, recent_median_s()) : Change::none;
}

SlowdownDetector::Change SlowdownDetector::report_slow(Reference reference, double reference_s) {
  slow_ = true;
  was_normal_ = false;
  reference_ = reference;
  reference_s_ = reference_s;
  slow_for_s_ = recent_for_s_;
  reported_s_ = std::max(recent_s_, sum_of_last(sudden_windows).mean());  // not again at once
  return Change::slower;
}

SlowdownDetector::Change SlowdownDetector::judge_slow(bool ended_block) {
  if (is_back_within((1 + tolerated) / 2 * reference_s_)) {
    slow_ = false;
    slow_for_s_ -= recent_for_s_;
    forget_last_windows();
    return Change::recovered;
  }
  if (slower_than(tolerated * reported_s_)) {
    reported_s_ = recent_s_;
    return Change::slower;
  }
  return ended_block && has_settled() ? settle() : Change::none;
}

// Back from what came little by little is who is so for as long.
bool SlowdownDetector::is_back_within(double limit_s) {
  const bool sudden = reference_ == Reference::recent;
  const std::size_t windows = sudden ? look_back(back_s, back_steps, back_windows)
                                     : look_back(gradual_s, gradual_steps, gradual_windows);
  return windows > 0 && pace_of_last(windows, sudden) <= limit_s;
}

// Most blocks are alike, and the last quarter is not slower than the first.
bool SlowdownDetector::has_settled() const {
  const std::size_t blocks = last_blocks_.size(), quarter = blocks / 4;
  if (slow_for_s_ < settled_s || blocks < least_settled) return false;
  const double middle = stretch(blocks);
  const auto is_near = [=](const Block& b) {
    return b.median_s < stable * middle && stable * b.median_s > middle;
  };
  return 10 * std::ranges::count_if(last_blocks_, is_near) >= 8 * std::ssize(last_blocks_) &&
         stretch(quarter) <= no_trend * stretch(quarter, blocks - quarter);
}

SlowdownDetector::Change SlowdownDetector::settle() {
  slow_ = false;
  recent_s_ = best_s_ = stretch(last_blocks_.size());
  if (!before_settling_s_) since_settling_s_ = slow_for_s_;
  before_settling_s_ = std::min(reference_s_, before_settling_s_.value_or(reference_s_));
  expected_s_.reset();
  recent_windows_.assign(least_recent, best_s_);
  forget_last_windows();
  return Change::settled;
}

void SlowdownDetector::forget_last_windows() {
  last_windows_.clear();
  undecided_ = 0;
}

bool SlowdownDetector::is_back_from_settling() {
  if (!before_settling_s_ || stretch(back_blocks) > (1 + tolerated) / 2 * *before_settling_s_)
    return false;
  reference_ = Reference::best;
  reference_s_ = *std::exchange(before_settling_s_, std::nullopt);
  recent_s_ = stretch(back_blocks);
  slow_for_s_ = since_settling_s_;
  return true;
}

// On the whole, in most windows, and from the first of them on.
bool SlowdownDetector::slower_than(double limit_s) {
  const std::size_t windows = look_back(sudden_s, sudden_steps, sudden_windows);
  if (windows == 0 || pace_of_last(windows, true) <= limit_s) return false;
  const auto first = last_windows_.end() - static_cast<std::ptrdiff_t>(windows);
  const auto is_slow = [=](const Stretch& w) { return w.mean() > limit_s; };
  const auto slow = static_cast<std::size_t>(std::count_if(first, last_windows_.end(), is_slow));
  return is_slow(*first) && 4 * slow >= 3 * windows;
}

// Most of the older half, too: what came suddenly is not for here.
bool SlowdownDetector::gradually_slower_than(double limit_s) {
  const std::size_t windows = look_back(gradual_s, gradual_steps, gradual_windows);
  if (windows == 0 || pace_of_last(windows, false) <= limit_s) return false;
  const auto first = last_windows_.end() - static_cast<std::ptrdiff_t>(windows);
  const auto half = first + static_cast<std::ptrdiff_t>(windows / 2);
  const auto is_slow = [=](const Stretch& w) { return w.mean() > limit_s; };
  return 4 * std::count_if(first, half, is_slow) >= 3 * (half - first);
}

std::size_t SlowdownDetector::look_back(double seconds, int steps, std::size_t windows) const {
  Stretch sum;
  for (std::size_t count = 1; count <= last_windows_.size(); ++count) {
    const Stretch& window = last_windows_[last_windows_.size() - count];
    sum.seconds += window.seconds;
    sum.steps += window.steps;
    if (sum.seconds >= seconds && sum.steps >= steps && count >= windows) return count;
  }
  return 0;
}

SlowdownDetector::Stretch SlowdownDetector::sum_of_last(std::size_t windows) const {
  Stretch sum;
  for (auto w = last_windows_.end() - static_cast<std::ptrdiff_t>(windows);
       w != last_windows_.end(); ++w) {
    sum.seconds += w->seconds;
    sum.steps += w->steps;
  }
  return sum;
}

double SlowdownDetector::pace_of_last(std::size_t windows, bool as_mean) {
  const Stretch sum = sum_of_last(windows);
  recent_for_s_ = sum.seconds;
  if (as_mean) return recent_s_ = sum.mean();
  std::vector<double> paces;
  for (std::size_t i = last_windows_.size() - windows; i < last_windows_.size(); ++i)
    paces.push_back(last_windows_[i].mean());
  return recent_s_ = upper_median(std::move(paces));
}

}  // namespace ringtrain
