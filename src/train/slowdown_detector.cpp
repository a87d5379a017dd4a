#include "train/slowdown_detector.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "ringtrain/train/statistics.hpp"

namespace ringtrain {
namespace {

constexpr double tolerated = SlowdownDetector::tolerated;
constexpr double least_window_s = 0.5, most_excused_s = 30;
constexpr int window_steps = 2;

double upper_median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace

// --- sudden ---

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
  return std::max(tolerated * spread.median, spread.median + noise * spread.deviation);
}

SuddenSlowdown::Change SuddenSlowdown::add(const PaceWindow& window) {
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

SuddenSlowdown::Change SuddenSlowdown::judge_normal() {
  const double limit = limit_s();
  if (reference_.size() < least_reference || undecided_.back().step_s() <= limit)
    return std::exchange(was_normal_, true) ? Change::normal : Change::none;
  was_normal_ = false;
  if (!slower_than(limit)) return Change::none;
  slow_ = true;
  reported_s_ = recent_s();
  slow_for_s_ = last_.seconds;
  return Change::slower;
}

// Back means nearer to the reference than to the limit.
SuddenSlowdown::Change SuddenSlowdown::judge_slow() {
  if (back_within((reference_s() + limit_s()) / 2)) {
    slow_ = false;
    slow_for_s_ -= last_.seconds;
    undecided_.clear();
    return Change::recovered;
  }
  if (!slower_than(tolerated * reported_s_)) return Change::none;
  reported_s_ = recent_s();
  return Change::slower;
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

// --- gradual ---

namespace {

constexpr double gradual_s = 30;
constexpr int gradual_steps = 30;  // so that what comes suddenly is reported as that
constexpr std::size_t gradual_windows = 6;
// Half a minute's median differs by chance from that of other minutes. With this allowance a
// slow-down is reported when it reaches a quarter, not some time afterwards.
constexpr double allowance = 1.04;
constexpr double block_noise = 8;  // deviations of blocks from those beside them that are none
constexpr std::size_t least_differences = 3;
constexpr double block_s = 30, began_to_fall = 1.1;
constexpr std::size_t block_windows = 10, stretch_blocks = 4, least_settled = 12;
constexpr double stable = 1.15, no_trend = 1.05;  // what settled blocks differ by

}  // namespace

GradualSlowdown::Change GradualSlowdown::add(const PaceWindow& window, bool judge) {
  falling_for_s_ += window.seconds;
  since_settling_s_ += window.seconds;
  unjudged_s_ = judge ? 0 : unjudged_s_ + window.seconds;
  slow_for_s_ = slow_ ? slow_for_s_ + window.seconds : unjudged_s_;
  last_windows_.push_back(window);
  if (!judge) last_windows_.clear();
  look_back();
  const bool ended_block = add_to_block(window, judge);
  if (!judge)  // what came suddenly may come to stay, too
    return ended_block && has_settled() ? settle() : Change::none;
  if (slow_) return judge_slow(ended_block);
  if (ended_block && is_back_from_settling()) return Change::recovered;
  if (best_s_ == 0 || !slower_than(limit_s())) return Change::none;
  slow_ = true;
  reference_s_ = best_s_;
  reported_s_ = recent_s_;
  slow_for_s_ = gradual_s;
  return Change::slower;
}

double GradualSlowdown::limit_s() const {
  return std::max(tolerated / allowance, 1 + block_noise * deviation_) * best_s_;
}

GradualSlowdown::Change GradualSlowdown::judge_slow(bool ended_block) {
  if (recent_s_ == 0) return Change::none;
  if (recent_s_ <= (1 + tolerated) / 2 * reference_s_) {
    slow_ = false;
    slow_for_s_ -= gradual_s;
    return Change::recovered;
  }
  if (tolerated * recent_s_ < reported_s_) reported_s_ = recent_s_;  // it has become better since
  if (slower_than(tolerated * reported_s_)) {
    reported_s_ = recent_s_;
    return Change::slower;
  }
  return ended_block && has_settled() ? settle() : Change::none;
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
    const auto stretch_begin = blocks_.end() - static_cast<std::ptrdiff_t>(stretch_blocks);
    const bool judged = std::all_of(stretch_begin, blocks_.end(), [](auto& b) { return b.judged; });
    if (const double step_s = stretch(stretch_blocks);
        judged && (best_s_ == 0 || step_s < best_s_)) {
      best_s_ = step_s;
      ++bests_;
    }
  }
  if (blocks_.back().median_s <= began_to_fall * best_s_) falling_for_s_ = 0;
}

double GradualSlowdown::stretch_seconds() const {
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

// Between neighbours, so that a trend counts for nothing, and without those of a slow-down. For
// normal noise, 1.05 times the median difference is the deviation.
double GradualSlowdown::block_deviation() const {
  std::vector<double> differences;
  for (std::size_t i = 1; i < blocks_.size(); ++i)
    if (const Block& a = blocks_[i - 1], &b = blocks_[i]; a.judged && b.judged)
      differences.push_back(std::abs(b.median_s / a.median_s - 1));
  if (differences.size() < least_differences) return 0;
  return 1.05 * upper_median(std::move(differences));
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

GradualSlowdown::Change GradualSlowdown::settle() {
  if (!before_settling_s_) since_settling_s_ = slow_for_s_;
  reference_s_ = best_s_;
  before_settling_s_ = std::min(best_s_, before_settling_s_.value_or(best_s_));
  recent_s_ = best_s_ = stretch(blocks_.size());
  slow_ = false;
  unjudged_s_ = 0;
  return Change::settled;
}

bool GradualSlowdown::is_back_from_settling() {
  if (!before_settling_s_ || stretch(stretch_blocks) > (1 + tolerated) / 2 * *before_settling_s_)
    return false;
  reference_s_ = *std::exchange(before_settling_s_, std::nullopt);
  recent_s_ = stretch(stretch_blocks);
  slow_for_s_ = since_settling_s_;
  return true;
}

// --- all of it ---

SlowdownDetector::Change SlowdownDetector::step(double seconds, bool excused) {
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

SlowdownDetector::Change SlowdownDetector::judge(const PaceWindow& window) {
  const bool was_slow = sudden_.slow();
  const auto sudden = sudden_.add(window);
  const auto gradual = gradual_.add(window, !was_slow && !sudden_.slow());
  const auto of_sudden = [&](Change change) {
    return report(Reference::recent, change, sudden_.reference_s(), sudden_.recent_s(),
                  sudden_.slow_for_s());
  };
  const auto of_gradual = [&](Change change) {
    return report(Reference::best, change, gradual_.reference_s(), gradual_.recent_s(),
                  gradual_.slow_for_s());
  };
  if (sudden == SuddenSlowdown::Change::slower) return of_sudden(Change::slower);
  if (sudden == SuddenSlowdown::Change::recovered) return of_sudden(Change::recovered);
  switch (gradual) {
    case GradualSlowdown::Change::slower:
      return of_gradual(Change::slower);
    case GradualSlowdown::Change::recovered:
      return of_gradual(Change::recovered);
    case GradualSlowdown::Change::settled:
      sudden_.accept(gradual_.recent_s());
      return of_gradual(Change::settled);
    case GradualSlowdown::Change::none:
      break;
  }
  if (const Change change = judge_expected(); change != Change::none) return change;
  return sudden == SuddenSlowdown::Change::normal ? Change::normal : Change::none;
}

SlowdownDetector::Change SlowdownDetector::report(Reference reference, Change change,
                                                  double reference_s, double recent_s,
                                                  double slow_for_s) {
  reference_ = reference;
  reference_s_ = reference_s;
  recent_s_ = recent_s;
  slow_for_s_ = slow_for_s;
  return change;
}

// Once, of the first two minutes that can be judged; and when the run becomes as fast after all.
SlowdownDetector::Change SlowdownDetector::judge_expected() {
  const double best_s = gradual_.best_s();
  if (!expected_s_ || best_s == 0) return Change::none;
  const auto reported = [&](Change change) {
    return report(Reference::expected, change, *expected_s_, best_s, judged_s_);
  };
  if (!std::exchange(expected_judged_, true)) {
    slower_than_expected_ = best_s > tolerated * *expected_s_;
    return slower_than_expected_ ? reported(Change::slower) : Change::none;
  }
  if (!slower_than_expected_ || best_s > (1 + tolerated) / 2 * *expected_s_) return Change::none;
  slower_than_expected_ = false;
  return reported(Change::recovered);
}

}  // namespace ringtrain
