#pragma once
#include <cstddef>
#include <deque>
#include <optional>
#include <vector>

namespace ringtrain::monitor {

/// Steps taken together: single slow ones are no news.
struct PaceWindow {
  double seconds = 0;
  int steps = 0;
  double step_s() const { return steps > 0 ? seconds / steps : 0; }
};

enum class PaceChange {
  none,
  normal,     ///< the last windows were like those before
  slower,     ///< steps have become slow, or a quarter slower than was reported
  recovered,  ///< they are like the reference again
  settled,    ///< they have been slow for an hour: that is the reference from now on
};

/// Detects that steps suddenly take longer than in the last two minutes, and when they no longer
/// do.
class SuddenSlowdown {
 public:
  PaceChange add(const PaceWindow& window);
  /// What was slow is the reference from now on.
  void accept(double step_s);

  bool slow() const { return slow_; }
  /// How many there were.
  int ended() const { return ended_; }
  /// Seconds a step: the reference, and the time that the last change is about.
  double reference_s() const;
  double recent_s() const { return last_.step_s(); }
  double slow_for_s() const { return slow_for_s_; }

 private:
  PaceChange judge_normal();
  PaceChange judge_slow();
  bool slower_than(double limit_s);
  bool back_within(double limit_s);
  double limit_s() const;
  /// The last windows that make up so much, as a sum in last_; how many, 0: there are too few.
  std::size_t look_back(double seconds, int steps, std::size_t windows);

  PaceWindow last_;
  std::deque<double> reference_;      // seconds a step, by window
  std::deque<PaceWindow> undecided_;  // windows of which it is not known yet what they are
  bool was_normal_ = false;           // the window before
  bool slow_ = false;
  double reported_s_ = 0, slow_for_s_ = 0;
  int ended_ = 0;
};

/// Detects that steps take longer than in the fastest minutes of the run, however slowly that came,
/// and when they no longer do. In the first two minutes, the first 10 s are all that is known.
/// Windows make blocks of half a minute.
class GradualSlowdown {
 public:
  /// `judge`: false while something else explains that steps are slow; time passes all the same.
  PaceChange add(const PaceWindow& window, bool judge);

  bool slow() const { return slow_; }
  /// Seconds a step in the fastest stretch: the median of four blocks. 0 before there are four.
  double best_s() const { return best_s_; }
  /// How many stretches were the fastest of their time, the first 10 s among them. It grows when
  /// one has just ended.
  int bests() const { return bests_; }
  /// Seconds of the last stretch.
  double stretch_seconds() const;
  double reference_s() const { return reference_s_; }
  double recent_s() const { return recent_s_; }
  double slow_for_s() const { return slow_for_s_; }
  /// For how long steps have taken more than 1.1 times the best.
  double falling_for_s() const { return falling_for_s_; }

 private:
  struct Block {
    double median_s = 0, seconds = 0;  ///< a step; of all its windows
    bool judged = true;                ///< all of it
  };

  bool add_to_block(const PaceWindow& window, bool judge);
  void learn_first(const PaceWindow& window);
  void end_block();
  void look_back();
  bool slower_than(double limit_s) const;
  bool has_settled() const;
  PaceChange settle();
  PaceChange judge_slow(bool ended_block);
  bool is_back_from_settling();
  double limit_s() const;
  /// What a step took in the best time: the reference.
  double pace_s() const;
  bool all_judged(std::size_t last) const;
  /// The median of so many blocks, `before` the last ones.
  double stretch(std::size_t blocks, std::size_t before = 0) const;
  double block_deviation() const;

  std::deque<PaceWindow> last_windows_;  // of the last half minute
  std::vector<double> block_;            // windows of the block that is not over, seconds a step
  double block_s_ = 0;                   // its seconds
  bool block_judged_ = true;
  std::deque<Block> blocks_;  // of the last hour
  double blocks_s_ = 0, deviation_ = 0;
  int bests_ = 0;
  std::vector<double> first_;  // windows of the first seconds, seconds a step
  double first_seconds_ = 0, first_s_ = 0;
  double best_s_ = 0, long_best_s_ = 0;      // of four blocks, and of twenty; 0: there are too few
  std::optional<double> before_settling_s_;  // the best that was given up
  bool slow_ = false;
  double reference_s_ = 0, recent_s_ = 0, reported_s_ = 0;
  double slow_for_s_ = 0, unjudged_s_ = 0, falling_for_s_ = 0, since_settling_s_ = 0;
};

/// Detects that stalls come again and again, be they as short as some steps: the last two minutes,
/// or the last one, are slower on the whole than the fastest two of the run, but for a part of the
/// time they are not.
class RepeatedStalls {
 public:
  /// `judge`: false while something else explains that steps are slow.
  PaceChange add(const PaceWindow& window, bool judge);

  /// Seconds a step: the mean of the best time, and that of the stretch that was judged last.
  double reference_s() const;
  double recent_s() const { return sum_.step_s(); }
  double slow_for_s() const { return slow_for_s_; }
  /// The seconds of that stretch, how many stalls there were, and the seconds that they lost.
  double stretch_s() const { return sum_.seconds; }
  int stalls() const { return stalls_; }
  double lost_s() const { return lost_s_; }

 private:
  void learn(const PaceWindow& window);
  bool look_back(double seconds);
  bool repeats() const;
  PaceChange judge_slow();
  PaceChange report_slower();

  std::deque<PaceWindow> last_;    // of two minutes
  PaceWindow block_;               // the one that is not over
  std::deque<PaceWindow> blocks_;  // of half a minute each
  double best_s_ = 0, long_best_s_ = 0, deviation_ = 0;
  PaceWindow sum_;  // of the stretch
  double reported_s_ = 0, lost_s_ = 0, longest_s_ = 0, slow_for_s_ = 0;
  int stalls_ = 0;
  bool slow_ = false;
};

/// Makes one slow-down of those that come and go: the third within an hour is the last that is
/// reported by itself, until there was none for ten minutes. Then it is gone; when it comes
/// again all the same, it is reported as one at once, and gone after twice that time, up to four
/// hours. After a day without one, this is forgotten. One that stays for five minutes is reported;
/// the next for ten, up to half an hour.
class Recurrence {
 public:
  /// `seconds` have passed since the last call, and then there was `change`; `recent_s` is what a
  /// step takes now. Returns what is to be reported of it.
  PaceChange filter(PaceChange change, double recent_s, double seconds);

  struct Times {
    int count = 0;       ///< that it came; 0: each was reported by itself
    double since_s = 0;  ///< the first of them began
    double slow_s = 0;   ///< they lasted, together
    double gone_s = 0;   ///< without one, and it is gone
    double stays_s = 0;  ///< one that lasts so long is reported
  };
  /// What the last change that was to be reported is about.
  const Times& times() const { return times_; }

 private:
  struct Episode {
    double begin_s = 0, slow_s = 0;
  };
  void begin_recurring(double recent_s);
  PaceChange filter_recurring(PaceChange change, double recent_s);
  Times all() const;

  std::deque<Episode> recent_;  // of the last hour
  Times all_;                   // since first_s_, without the time since then
  double first_s_ = 0, now_s_ = 0, changed_s_ = 0, worst_s_ = 0, gone_s_ = 0, stays_s_ = 0;
  bool slow_ = false, recurring_ = false, recurred_ = false;
  bool stays_ = false;  // which was reported
  Times times_;
};

/// Detects when training has become slower: suddenly, little by little, by stalls, or from its
/// start. Each is reported by itself. Thread: one.
class SlowdownDetector {
 public:
  /// A step that takes this many times the reference is slow: a fifth fewer examples a second.
  static constexpr double tolerated = 1.25;
  /// A sudden slow-down is reported once it has lasted for so long, and so many steps.
  static constexpr double sudden_s = 5;
  static constexpr int sudden_steps = 20;
  /// A slower pace that was stable for so long becomes the reference.
  static constexpr double settled_s = 3600;

  using Change = PaceChange;
  /// What the last change is a comparison with.
  enum class Reference {
    recent,    ///< the median of the last two minutes
    best,      ///< the fastest two minutes of the run
    stalls,    ///< the same, by the mean step: most steps are as before
    expected,  ///< what expect() was told
  };

  /// A step is over. `excused`: something is under way for which steps may take longer; that counts
  /// for half a minute at most.
  Change step(double seconds, bool excused);
  /// A step should take no longer than this. The first two minutes are compared with it.
  void expect(double step_s) { expected_s_ = step_s; }

  Reference reference() const { return last_.reference; }
  double reference_s() const { return last_.reference_s; }  ///< seconds a step
  double recent_s() const { return last_.recent_s; }        ///< likewise, of what is compared
  /// For how long steps have been slow or, once they have recovered, had been.
  double slow_for_s() const { return last_.slow_for_s; }
  const SuddenSlowdown& sudden() const { return sudden_; }
  const GradualSlowdown& gradual() const { return gradual_; }
  const RepeatedStalls& stalls() const { return stalls_; }
  /// How often what the last change is about came and went, if it did.
  const Recurrence::Times& times() const { return last_.times; }

 private:
  bool is_excused(double seconds, bool excused);
  Change judge(const PaceWindow& window);
  Change judge_sudden(const PaceWindow& window);
  Change judge_gradual(const PaceWindow& window, bool judge);
  Change judge_stalls(const PaceWindow& window, bool judge);
  void judge_expected();

  struct ChangeReport {
    Change change = Change::none;
    Reference reference = Reference::recent;
    double reference_s = 0, recent_s = 0, slow_for_s = 0;
    Recurrence::Times times;
  };

  int warm_up_ = 10;  // steps that are still left out
  PaceWindow open_;
  bool open_is_excused_ = false;
  double excused_s_ = 0, judged_s_ = 0;
  SuddenSlowdown sudden_;
  GradualSlowdown gradual_;
  RepeatedStalls stalls_;
  Recurrence sudden_ones_, gradual_ones_, stalling_ones_;
  std::optional<double> expected_s_;
  bool slower_than_expected_ = false, expected_judged_ = false;
  std::deque<ChangeReport> reports_;  // that are to be reported
  ChangeReport last_;                 // that was
};

}  // namespace ringtrain::monitor
