// Slow-downs that show beside the best time of the run: gradual ones, and stalls that repeat.
// Sudden ones are in sudden_slowdown.cpp; slowdown_detector.cpp has all see the same windows.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "ringtrain/monitor/slowdown/slowdown_detector.hpp"

namespace ringtrain::monitor {
namespace {

constexpr double tolerated = SlowdownDetector::tolerated;

double upper_median(std::vector<double> values);

// Of blocks from those beside them, so that a trend counts for nothing; 0 is none. For normal
// noise, 1.05 times the median difference is the deviation. 0 where too few are known.
double deviation_of_neighbours(const std::vector<double>& blocks) {
  constexpr std::size_t least_differences = 3;
  std::vector<double> differences;
  for (std::size_t i = 1; i < blocks.size(); ++i)
    if (blocks[i - 1] > 0 && blocks[i] > 0)
      differences.push_back(std::abs(blocks[i] / blocks[i - 1] - 1));
  return differences.size() < least_differences ? 0 : 1.05 * upper_median(std::move(differences));
}

double upper_median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace

// --- gradual ---

namespace {

constexpr double gradual_s = 30;
constexpr int gradual_steps = 30;  // so that what comes suddenly is reported as that
constexpr std::size_t gradual_windows = 6;
// Half a minute's median differs by chance from that of other minutes. With this allowance a
// slow-down is reported when it reaches a quarter, not some time afterwards.
constexpr double allowance = 1.03;
constexpr double block_noise = 4.5;  // deviations of blocks from those beside them that are none
constexpr double block_s = 30, began_to_fall = 1.1;
constexpr std::size_t block_windows = 10, stretch_blocks = 4, least_settled = 12;
constexpr std::size_t long_blocks = 20;
constexpr double most_chance = 1.06;
constexpr double first_stretch_s = 10, first_tolerated = 1.3;
constexpr double stable = 1.15, no_trend = 1.05;  // what settled blocks differ by

}  // namespace

PaceChange GradualSlowdown::add(const PaceWindow& window, bool judge) {
  falling_for_s_ += window.seconds;
  since_settling_s_ += window.seconds;
  unjudged_s_ = judge ? 0 : unjudged_s_ + window.seconds;
  slow_for_s_ = slow_ ? slow_for_s_ + window.seconds : unjudged_s_;
  last_windows_.push_back(window);
  if (!judge) last_windows_.clear();
  look_back();
  const bool ended_block = add_to_block(window, judge);
  if (!judge)  // what came suddenly may come to stay, too
    return ended_block && has_settled() ? settle() : PaceChange::none;
  if (slow_) return judge_slow(ended_block);
  if (ended_block && is_back_from_settling()) return PaceChange::recovered;
  if (judge) learn_first(window);
  if (pace_s() == 0 || !slower_than(limit_s())) return PaceChange::none;
  slow_ = true;
  reference_s_ = pace_s();
  reported_s_ = recent_s_;
  slow_for_s_ = gradual_s;
  return PaceChange::slower;
}

// Of the first seconds something is known before the first stretch is over.
void GradualSlowdown::learn_first(const PaceWindow& window) {
  if (pace_s() > 0) return;
  first_.push_back(window.step_s());
  first_seconds_ += window.seconds;
  if (first_seconds_ < first_stretch_s || first_.size() < block_windows) return;
  first_s_ = upper_median(std::move(first_));
  ++bests_;
}

double GradualSlowdown::limit_s() const {
  if (best_s_ == 0) return first_tolerated * first_s_;
  return std::max(tolerated / allowance, 1 + block_noise * deviation_) * pace_s();
}

// The fastest of many stretches is so by chance, too. Less so a long one, but that may hold a part
// of the slow-down.
double GradualSlowdown::pace_s() const {
  if (best_s_ == 0) return first_s_;
  return std::max(best_s_, std::min(long_best_s_, most_chance * best_s_));
}

PaceChange GradualSlowdown::judge_slow(bool ended_block) {
  if (recent_s_ == 0) return PaceChange::none;
  if (recent_s_ <= (1 + tolerated) / 2 * reference_s_) {
    slow_ = false;
    slow_for_s_ -= gradual_s;
    return PaceChange::recovered;
  }
  if (tolerated * recent_s_ < reported_s_) reported_s_ = recent_s_;  // it has become better since
  if (slower_than(tolerated * reported_s_)) {
    reported_s_ = recent_s_;
    return PaceChange::slower;
  }
  return ended_block && has_settled() ? settle() : PaceChange::none;
}

// The windows of the last half minute and 30 steps stay, and their median is the recent pace.
void GradualSlowdown::look_back() {
  const auto enough_without_first = [&] {
    PaceWindow sum;
    for (std::size_t i = 1; i < last_windows_.size(); ++i) {
      sum.seconds += last_windows_[i].seconds;
      sum.steps += last_windows_[i].steps;
    }
    return sum.seconds >= gradual_s && sum.steps >= gradual_steps &&
           last_windows_.size() > gradual_windows;
  };
  while (enough_without_first()) last_windows_.pop_front();
  std::vector<double> paces;
  double seconds = 0;
  int steps = 0;
  for (const PaceWindow& w : last_windows_) {
    paces.push_back(w.step_s());
    seconds += w.seconds;
    steps += w.steps;
  }
  const bool enough =
      seconds >= gradual_s && steps >= gradual_steps && paces.size() >= gradual_windows;
  recent_s_ = enough ? upper_median(std::move(paces)) : 0;
}

// The median, and most of the older half: what comes suddenly is reported elsewhere.
bool GradualSlowdown::slower_than(double limit) const {
  if (recent_s_ <= limit) return false;
  const auto half = last_windows_.begin() + std::ssize(last_windows_) / 2;
  const auto is_slow = [=](const PaceWindow& w) { return w.step_s() > limit; };
  return 4 * std::count_if(last_windows_.begin(), half, is_slow) >=
         3 * (half - last_windows_.begin());
}

bool GradualSlowdown::add_to_block(const PaceWindow& window, bool judge) {
  block_judged_ = block_judged_ && judge;
  block_.push_back(window.step_s());
  block_s_ += window.seconds;
  if (block_s_ < block_s || block_.size() < block_windows) return false;
  end_block();
  return true;
}

void GradualSlowdown::end_block() {
  blocks_.push_back(
      {upper_median(std::exchange(block_, {})), block_s_, std::exchange(block_judged_, true)});
  blocks_s_ += std::exchange(block_s_, 0);
  while (blocks_.size() > least_settled &&
         blocks_s_ - blocks_.front().seconds >= SlowdownDetector::settled_s) {
    blocks_s_ -= blocks_.front().seconds;
    blocks_.pop_front();
  }
  deviation_ = block_deviation();
  if (blocks_.size() >= stretch_blocks) {
    if (const double step_s = stretch(stretch_blocks); all_judged(stretch_blocks) &&
                                                       !(slow_ && best_s_ == 0) &&
                                                       (best_s_ == 0 || step_s < best_s_)) {
      best_s_ = step_s;
      ++bests_;
    }
  }
  if (best_s_ > 0 && blocks_.size() >= long_blocks && all_judged(long_blocks)) {
    const double step_s = stretch(long_blocks);
    if (long_best_s_ == 0 || step_s < long_best_s_) long_best_s_ = step_s;
  }
  if (blocks_.back().median_s <= began_to_fall * pace_s()) falling_for_s_ = 0;
}

bool GradualSlowdown::all_judged(std::size_t last) const {
  return std::all_of(blocks_.end() - static_cast<std::ptrdiff_t>(last), blocks_.end(),
                     [](const Block& b) { return b.judged; });
}

double GradualSlowdown::stretch_seconds() const {
  if (best_s_ == 0) return first_seconds_;
  double seconds = 0;
  for (std::size_t i = 0; i < std::min(stretch_blocks, blocks_.size()); ++i)
    seconds += blocks_[blocks_.size() - 1 - i].seconds;
  return seconds;
}

double GradualSlowdown::stretch(std::size_t blocks, std::size_t before) const {
  std::vector<double> medians;
  for (std::size_t i = before; i < blocks_.size() && i < before + blocks; ++i)
    medians.push_back(blocks_[blocks_.size() - 1 - i].median_s);
  return upper_median(std::move(medians));
}

// Without those of a slow-down.
double GradualSlowdown::block_deviation() const {
  std::vector<double> medians;
  for (const Block& block : blocks_) medians.push_back(block.judged ? block.median_s : 0);
  return deviation_of_neighbours(medians);
}

// Most blocks are alike, and the last quarter is not slower than the first.
bool GradualSlowdown::has_settled() const {
  const std::size_t blocks = blocks_.size(), quarter = blocks / 4;
  if (slow_for_s_ < SlowdownDetector::settled_s || blocks < least_settled) return false;
  const double middle = stretch(blocks);
  const auto is_near = [=](const Block& b) {
    return b.median_s < stable * middle && stable * b.median_s > middle;
  };
  return 10 * std::ranges::count_if(blocks_, is_near) >= 8 * std::ssize(blocks_) &&
         stretch(quarter) <= no_trend * stretch(quarter, blocks - quarter);
}

PaceChange GradualSlowdown::settle() {
  if (!before_settling_s_) since_settling_s_ = slow_for_s_;
  if (!slow_) reference_s_ = pace_s();
  before_settling_s_ = std::min(reference_s_, before_settling_s_.value_or(reference_s_));
  recent_s_ = best_s_ = stretch(blocks_.size());
  long_best_s_ = 0;
  slow_ = false;
  unjudged_s_ = 0;
  return PaceChange::settled;
}

bool GradualSlowdown::is_back_from_settling() {
  if (!before_settling_s_ || stretch(stretch_blocks) > (1 + tolerated) / 2 * *before_settling_s_)
    return false;
  reference_s_ = *std::exchange(before_settling_s_, std::nullopt);
  recent_s_ = stretch(stretch_blocks);
  slow_for_s_ = since_settling_s_;
  return true;
}

// --- stalls ---

namespace {

constexpr double stall_block_s = 30;
constexpr std::size_t best_blocks = 4, long_best_blocks = 20;
constexpr int least_stalls = 3, stalls_steps = 40;
constexpr double stall = 1.75;  // times the mean of the best time

/// The last seconds that are judged, and how much slower than before their mean is then. A minute's
/// mean differs more by chance than that of two.
struct Stretch {
  double seconds, tolerated;
};
constexpr std::array stretches = {Stretch{120, tolerated}, Stretch{60, 1.03 * tolerated}};

}  // namespace

PaceChange RepeatedStalls::add(const PaceWindow& window, bool judge) {
  if (slow_) slow_for_s_ += window.seconds;
  if (!judge) {
    last_.clear();
    block_ = sum_ = {};
    blocks_.clear();
    return PaceChange::none;
  }
  last_.push_back(window);
  learn(window);
  if (best_s_ == 0) return PaceChange::none;
  if (slow_) return judge_slow();
  const bool found = std::ranges::any_of(stretches, [this](const Stretch& stretch) {
    const double limit = std::max(stretch.tolerated, 1 + block_noise * deviation_);
    return look_back(stretch.seconds) && repeats() && recent_s() > limit * reference_s();
  });
  if (!found) return PaceChange::none;
  slow_ = true;
  slow_for_s_ = sum_.seconds;
  return report_slower();
}

// Over once neither stretch is slow by stalls that repeat. A single long one makes it no worse.
PaceChange RepeatedStalls::judge_slow() {
  bool known = false;
  for (const Stretch& stretch : stretches) {
    if (!look_back(stretch.seconds)) continue;
    known = true;
    if (stalls_ < least_stalls || recent_s() <= (1 + tolerated) / 2 * reference_s()) continue;
    const bool worse = recent_s() > tolerated * reported_s_ && repeats();
    return worse ? report_slower() : PaceChange::none;
  }
  if (!known) return PaceChange::none;
  slow_ = false;
  slow_for_s_ -= sum_.seconds;
  last_.clear();  // the last stalls are in them
  return PaceChange::recovered;
}

// The least mean of two minutes, or of ten, as the least of many is so by chance, too.
void RepeatedStalls::learn(const PaceWindow& window) {
  block_.seconds += window.seconds;
  block_.steps += window.steps;
  if (block_.seconds < stall_block_s || block_.steps < stalls_steps / int{best_blocks}) return;
  blocks_.push_back(std::exchange(block_, {}));
  if (blocks_.size() > long_best_blocks) blocks_.pop_front();
  const auto mean_of = [this](std::size_t blocks) {
    PaceWindow sum;
    for (std::size_t i = 1; i <= blocks; ++i) {
      sum.seconds += blocks_[blocks_.size() - i].seconds;
      sum.steps += blocks_[blocks_.size() - i].steps;
    }
    return sum.step_s();
  };
  const auto keep_least = [](double& least, double value) {
    if (least == 0 || value < least) least = value;
  };
  if (blocks_.size() >= best_blocks) keep_least(best_s_, mean_of(best_blocks));
  if (blocks_.size() >= long_best_blocks) keep_least(long_best_s_, mean_of(long_best_blocks));
  if (blocks_.size() < best_blocks) return;  // what was known before holds
  std::vector<double> means;
  for (const PaceWindow& block : blocks_) means.push_back(block.step_s());
  deviation_ = deviation_of_neighbours(means);
}

double RepeatedStalls::reference_s() const {
  return std::max(best_s_, std::min(long_best_s_, most_chance * best_s_));
}

PaceChange RepeatedStalls::report_slower() {
  reported_s_ = recent_s();
  return PaceChange::slower;
}

// Sums up the last `seconds`, and counts the stalls in them: windows on end that are slow. What is
// older than the longest stretch goes.
bool RepeatedStalls::look_back(double seconds) {
  sum_ = {};
  stalls_ = 0;
  lost_s_ = longest_s_ = 0;
  double stall_s = 0;
  std::size_t windows = 0;
  while (windows < last_.size() && (sum_.seconds < seconds || sum_.steps < stalls_steps)) {
    const PaceWindow& w = last_[last_.size() - ++windows];
    sum_.seconds += w.seconds;
    sum_.steps += w.steps;
    const bool slow = w.step_s() > stall * reference_s();
    stalls_ += slow && stall_s == 0;
    stall_s = slow ? stall_s + w.seconds - w.steps * reference_s() : 0;
    lost_s_ += slow ? w.seconds - w.steps * reference_s() : 0;
    longest_s_ = std::max(longest_s_, stall_s);
  }
  const bool enough = sum_.seconds >= seconds && sum_.steps >= stalls_steps;
  if (enough && seconds == stretches.front().seconds)
    last_.erase(last_.begin(), last_.end() - static_cast<std::ptrdiff_t>(windows));
  return enough;
}

// One long stall among short ones is none that repeats.
bool RepeatedStalls::repeats() const {
  return stalls_ >= least_stalls && 2 * longest_s_ <= lost_s_;
}

}  // namespace ringtrain::monitor
