#pragma once
#include <cstddef>
#include <deque>

namespace ringtrain {

/// Notices when steps take longer than usual, for a while, and when they no longer do. Usual is the
/// median of the last minutes but for the last seconds and for times that were told to be slow.
/// Steps are looked at in windows of half a second, so that single slow ones are no news.
class Pace {
 public:
  static constexpr double tolerated = 1.25;  ///< times the usual: a fifth fewer examples a second
  static constexpr double slow_s = 5;        ///< for so long, and
  static constexpr int slow_steps = 20;      ///< so many steps

  enum class News {
    none,
    usual,      ///< the last windows were as usual
    slow,       ///< steps have become slow, or much slower than was told
    recovered,  ///< they are as usual again
  };
  /// A step is over. `excused`: something was under way for which steps may take longer, for half a
  /// minute at most.
  News step(double seconds, bool excused);

  /// Seconds of a step, as usual.
  double usual_s() const;
  /// Seconds of a step, over the time that the last news is about.
  double lately_s() const { return lately_.seconds / lately_.steps; }
  /// For how long steps have been slow or, once they have recovered, had been.
  double slow_for_s() const { return slow_for_s_; }

 private:
  struct Stretch {
    double seconds = 0;
    int steps = 0;
    bool excused = false;
    double mean() const { return seconds / steps; }
  };

  News judge(const Stretch& window);
  News judge_usual();
  void remember(const Stretch& window);
  News judge_slow();
  bool excuse(const Stretch& window);
  bool slower_than(double limit_s);
  bool within(double limit_s);
  double limit_s() const;
  /// The last windows that make up so much, as a sum in lately_; how many, 0: there are too few.
  std::size_t look_back(double seconds, int steps, std::size_t windows);

  int warm_up_ = 10;  // steps that are still to be left out
  Stretch open_, lately_;
  std::deque<double> usual_;    // seconds a step, by window
  std::deque<Stretch> recent_;  // windows, of which it is not known yet what they are
  bool was_usual_ = false;      // the window before
  bool slow_ = false;
  double told_s_ = 0;  // a step
  double slow_for_s_ = 0, excused_s_ = 0;
};

}  // namespace ringtrain
