#pragma once
#include <cstddef>
#include <deque>
#include <limits>
#include <optional>
#include <vector>

namespace ringtrain {

/// Detects when steps have become slower, suddenly or little by little, and when they have
/// recovered. It compares the last seconds with the last minutes, and the last half minute with the
/// fastest stable pace of the whole run, which it never forgets. Steps are taken together in
/// windows of half a second, so that no single step counts. Thread: one.
class SlowdownDetector {
 public:
  /// A step that takes this many times the reference is slow: a fifth fewer examples a second.
  static constexpr double tolerated = 1.25;
  /// A sudden slow-down is reported once it has lasted for this long.
  static constexpr double sudden_s = 5;
  static constexpr int sudden_steps = 20;  ///< and for so many steps
  /// A gradual one is seen in the median window of the last 30 s and 20 steps.
  static constexpr double gradual_s = 30;
  static constexpr int gradual_steps = 20;
  /// A slower pace that was stable for so long becomes the reference.
  static constexpr double settled_s = 3600;

  enum class Change {
    none,
    normal,     ///< the last windows were like the reference
    slower,     ///< steps have become slow, or a quarter slower than was reported
    recovered,  ///< they are like the reference again
    settled,    ///< they have been slow for an hour: that is the reference from now on
  };
  /// What the pace is compared with.
  enum class Reference {
    recent,    ///< the median of the last two minutes
    best,      ///< the fastest half minute of the run
    expected,  ///< what expect() was told
  };

  /// A step is over. `excused`: something is under way for which steps may take longer; that counts
  /// for half a minute at most.
  Change step(double seconds, bool excused);
  /// A step should take no longer than this, from before or outside of this run. It replaces what
  /// was expected before and counts until the run itself has been faster.
  void expect(double step_s) { expected_s_ = step_s; }

  /// Seconds a step in the fastest block of the run so far; none before there is one.
  std::optional<double> best_s() const {
    return bests_ > 0 ? std::optional(best_s_) : std::nullopt;
  }
  /// With what the last report compares.
  Reference reference() const { return reference_; }
  double reference_s() const { return reference_s_; }  ///< seconds a step
  /// Seconds a step, over the time that the last report is about.
  double recent_s() const { return recent_s_; }
  /// For how long steps have been slow or, once they have recovered, had been.
  double slow_for_s() const { return slow_for_s_; }
  /// Of a gradual slow-down: for how long steps have taken more than 1.1 times the reference.
  double falling_for_s() const { return falling_for_s_; }
  /// How many blocks were the fastest of their time. It grows when one has just ended.
  int bests() const { return bests_; }
  /// Seconds of the block that ended last: half a minute and ten windows.
  double last_block_s() const { return last_blocks_.empty() ? 0 : last_blocks_.back().seconds; }

 private:
  struct Stretch {
    double seconds = 0;
    int steps = 0;
    bool excused = false;
    double mean() const { return seconds / steps; }
  };

  struct Block {
    double median_s = 0, seconds = 0;  ///< a step; of all its windows
    bool slow = false;                 ///< it ended during a slow-down
  };

  Change judge(const Stretch& window);
  Change judge_normal();
  Change judge_slow(bool ended_block);
  Change report_slow(Reference reference, double reference_s);
  bool is_excused(const Stretch& window);
  void remember(const Stretch& window);
  bool add_to_block(const Stretch& window);
  /// The median of so many blocks, `before` the last ones.
  double stretch(std::size_t blocks, std::size_t before = 0) const;
  double block_deviation() const;
  void forget_last_windows();
  bool has_settled() const;
  Change settle();
  bool is_back_from_settling();
  double recent_median_s() const;
  double sudden_limit_s() const;
  bool slower_than(double limit_s);
  bool gradually_slower_than(double limit_s);
  bool is_back_within(double limit_s);
  /// How many of the last windows make up so much, 0: there are too few.
  std::size_t look_back(double seconds, int steps, std::size_t windows) const;
  Stretch sum_of_last(std::size_t windows) const;
  /// Seconds a step of the last windows, their mean or median; also sets what was recent.
  double pace_of_last(std::size_t windows, bool as_mean);

  int warm_up_ = 10;  // steps that are still left out
  Stretch open_;
  std::deque<double> recent_windows_;  // seconds a step, without the last ones and slow ones
  std::deque<Stretch> last_windows_;   // of the last half minute and more
  std::size_t undecided_ = 0;          // how many of them are not yet among the recent ones
  bool was_normal_ = false;            // the window before

  std::vector<double> block_;      // windows of the block that is not over, seconds a step
  double block_s_ = 0;             // its seconds
  std::deque<Block> last_blocks_;  // of the last hour
  double last_blocks_s_ = 0, block_deviation_ = 0;
  bool block_is_slow_ = false;  // a part of it
  int bests_ = 0;
  double best_s_ = std::numeric_limits<double>::infinity();
  std::optional<double> expected_s_;
  std::optional<double> before_settling_s_;  // the reference that was given up

  bool slow_ = false;
  Reference reference_ = Reference::recent;
  double reference_s_ = 0, reported_s_ = 0;
  double recent_s_ = 0, recent_for_s_ = 0;
  double slow_for_s_ = 0, falling_for_s_ = 0, since_settling_s_ = 0, excused_s_ = 0;
};

}  // namespace ringtrain
