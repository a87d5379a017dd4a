#pragma once
// What is true of a run's speed, to judge by what is said of it. It shares no code with the rule of
// `monitor/slowdown`, looks at a whole run at once and takes as long as it likes.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <set>
#include <vector>

namespace ringtrain::truth {

inline constexpr double block_s = 10;
inline constexpr std::size_t half_minute = 3, minute = 6;  // blocks

/// A time in which the run was slower: six blocks whose mean is below 0.75 of what it had reached.
struct Episode {
  double begin_s = 0, end_s = 0;
  double seen_s = 0;    ///< the end of its first 30 s below 0.8
  double share = 1;     ///< the mean of the six blocks
  bool within = false;  ///< it is a fall within another: below 0.75 of the share of that one
};

/// The speed of a run, of the wall time that its steps took: means of blocks of 10 s, a step spread
/// evenly over its time.
class Speed {
 public:
  explicit Speed(const std::vector<double>& step_seconds) {
    done_.push_back(0);
    times_.push_back(0);
    for (const double seconds : step_seconds) {
      times_.push_back(times_.back() + seconds);
      done_.push_back(done_.back() + 1);
    }
    const auto blocks = static_cast<std::size_t>(times_.back() / block_s);
    for (std::size_t b = 0; b < blocks; ++b)
      blocks_.push_back(
          mean(block_s * static_cast<double>(b), block_s * static_cast<double>(b + 1)));
    find_episodes();
  }

  const std::vector<Episode>& episodes() const { return episodes_; }
  double seconds() const { return times_.back(); }
  /// Steps a second from `begin` to `end`.
  double mean(double begin, double end) const {
    return (done_at(end) - done_at(begin)) / (end - begin);
  }
  /// The upper decile of all 30 s means up to then that are of no episode; 0 where they make no
  /// minute.
  double usual_at(double time) const {
    const auto block = static_cast<std::size_t>(time / block_s);
    return usual_.empty() ? 0 : usual_[std::min(block, usual_.size() - 1)];
  }
  /// The least mean of 30 s that ends from `begin` to `end`, as a share of the reference then.
  double least_share(double begin, double end) const {
    double least = 1e9;
    for (double t = std::max(begin, 30.0); t <= std::min(end, seconds()); t += 1)
      if (usual_at(t) > 0) least = std::min(least, mean(t - 30, t) / usual_at(t));
    return least;
  }

 private:
  double done_at(double time) const {
    const auto after = std::upper_bound(times_.begin(), times_.end(), time);
    if (after == times_.end()) return done_.back();
    const auto i = static_cast<std::size_t>(after - times_.begin());
    return done_[i] - (times_[i] - time) / (times_[i] - times_[i - 1]);
  }
  /// Of so many blocks, `last` the last of them.
  double mean_of(std::size_t last, std::size_t count) const {
    double sum = 0;
    for (std::size_t b = last + 1 - count; b <= last; ++b) sum += blocks_[b];
    return sum / static_cast<double>(count);
  }
  static double upper_decile(const std::multiset<double>& means) {
    const auto rank =
        static_cast<std::size_t>(std::ceil(0.9 * static_cast<double>(means.size()))) - 1;
    return *std::next(means.begin(), static_cast<std::ptrdiff_t>(rank));
  }
  void find_episodes() {
    std::multiset<double> means;
    bool inside = false;
    double within_share = 1, usual = 0;
    std::size_t settled = 0;  // in the minute after its begin an episode's share is the least
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
      usual_.push_back(b >= minute && !means.empty() ? (inside ? usual : upper_decile(means)) : 0);
      if (b + 1 < half_minute) continue;
      if (b <
          2 * minute) {  // the first minute is of the reference, and no episode can begin within it
        means.insert(mean_of(b, half_minute));
        continue;
      }
      const double share = mean_of(b, minute) / (inside ? usual : usual_[b + 1 - minute]);
      if (!inside && share < 0.75) {
        inside = true;
        within_share = share;
        settled = b + minute;
        usual = usual_[b + 1 - minute];
        for (std::size_t k = b + 1 - minute; k < b; ++k)
          if (const auto found = means.find(mean_of(k, half_minute)); found != means.end())
            means.erase(found);
        usual_.back() = usual;
        begin(b, share, usual, false);
      } else if (inside && b < settled) {
        within_share = std::min(within_share, share);
      } else if (inside && share < 0.75 * within_share) {
        begin(b, share, usual * within_share, true);
        within_share = share;
        settled = b + minute;
      } else if (inside && share >= (1 + within_share) / 2) {
        inside = false;
      }
      if (inside)
        episodes_.back().end_s = block_s * static_cast<double>(b + 1);
      else
        means.insert(mean_of(b, half_minute));
    }
  }
  void begin(std::size_t b, double share, double compared_with, bool within) {
    Episode one{
        .begin_s = block_s * static_cast<double>(b + 1 - minute), .share = share, .within = within};
    for (std::size_t k = b; k >= b - half_minute; --k)
      if (mean_of(k, half_minute) < 0.8 * compared_with)
        one.seen_s = block_s * static_cast<double>(k + 1);
    episodes_.push_back(one);
  }

  std::vector<double> times_, done_;  // at the end of each step
  std::vector<double> blocks_, usual_;
  std::vector<Episode> episodes_;
};

}  // namespace ringtrain::truth
