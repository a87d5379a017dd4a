#pragma once
#include <array>
#include <cstddef>
#include <optional>

namespace ringtrain::monitor {

/// The numbers of the rule and of the comparison that names a cause, but for --slow-below.
struct SlowdownConstants {
  /// Speed is a mean over so long. On a quiet machine such means differ by a tenth, shorter ones by
  /// more; a longer one would notice a fall later than after a minute.
  static constexpr double window_s = 30;
  /// It is of so many steps, too: of fewer, one odd step makes the mean. Of steps that take longer
  /// than 1.5 s, these stand for half a minute.
  static constexpr double window_steps = 20;
  /// A fall to this share of the limit (to 0.6) is told at once, from a mean over so long. Nobody
  /// waits a minute to hear of a lost half, and a mean of 5 s follows each neighbour's burst. Other
  /// hosts that send for less than this share of one's time wait for its link.
  static constexpr double at_once = 0.75, at_once_s = 10;
  /// Stalls that are further apart than a window are told by a mean over this. After so much of
  /// recovery, a further fall is news.
  static constexpr double long_s = 120;
  /// What is back for so long has ended. Less, and each pause of a neighbour is an end.
  static constexpr double ended_s = 300;
  /// The reference is this quantile of the run's windows. The best are luck.
  static constexpr double quantile = 0.9;
  /// A cause explains this much of the loss, or of the time. Less, and the rest could be another's.
  static constexpr double explained = 0.5;
  /// What a step usually is made of is measured above this share of the reference.
  static constexpr double usual = 0.9;
  /// A run slower than an earlier one for so long will stay so: later ones are compared with it.
  static constexpr double stays_s = 3600;
};

/// Seconds of steps, and what was done in them.
struct SpeedSpan {
  double seconds = 0, examples = 0;
  int steps = 0;

  double speed() const { return seconds > 0 ? examples / seconds : 0; }
  SpeedSpan& operator+=(const SpeedSpan& more) {
    return *this = {seconds + more.seconds, examples + more.examples, steps + more.steps};
  }
};

/// Judges whether a run is slower than it was. Speed is a mean, so that stalls count. The reference
/// is the upper decile of the means since the start; what is slow within a slow-down never
/// enters it, or that would end by itself. Allocates nothing. Thread: one.
class SpeedRule {
 public:
  enum class Change {
    none,
    told,   ///< a slow-down has begun
    again,  ///< the speed has fallen once more, below the limit of what was told
    ended,  ///< half of what was lost is back
  };

  /// What is below this share of the reference is slow; with 0 nothing is, and all else is known.
  explicit SpeedRule(double below) : below_(below) {}

  /// A step is over.
  Change step(double seconds, double examples);

  double below() const { return below_; }
  /// Examples a second; 0: it is not known yet.
  double reference() const { return reference_; }
  /// The speed of the last window as a share of the reference.
  std::optional<double> share() const {
    return reference_ > 0 ? std::optional(speed_ / reference_) : std::nullopt;
  }
  /// Whether a slow-down was told that has not ended.
  bool slow() const { return slow_; }
  /// Whether the last window is below the limit.
  bool below_limit() const { return below_for_.steps > 0; }
  /// What a further fall is compared with: the share told, or that of the first whole window after
  /// what was told at once; more once the run has recovered.
  double compared_share() const { return compared_share_; }
  /// What the last change is about: a fall until it was noticed, at the end all of the slow-down.
  const SpeedSpan& fall() const { return fall_; }

 private:
  SpeedSpan last(double seconds) const;
  SpeedSpan fallen_below(double speed) const;
  double limit() const { return below_ * compared_share_ * reference_; }
  double back() const;
  void learn();
  Change judge(const SpeedSpan& slice);
  Change tell(const SpeedSpan& fall, bool at_once);
  Change follow(const SpeedSpan& slice);

  static constexpr std::size_t most_slices = 128, most_windows = 256;
  const double below_;
  SpeedSpan open_;  // the slice of a second that is not over
  std::array<SpeedSpan, most_slices> slices_{};
  std::size_t slices_seen_ = 0;
  double speed_ = 0;                            // of the last window
  std::array<double, most_windows> windows_{};  // of the reference; of many, every stride_-th
  std::size_t windows_kept_ = 0, windows_seen_ = 0, stride_ = 1;
  SpeedSpan all_, since_window_;
  double reference_ = 0;
  bool slow_ = false, settling_ = false;
  double told_share_ = 1, compared_share_ = 1;
  SpeedSpan below_for_, back_for_, since_told_;
  SpeedSpan episode_, worst_, fall_;  // worst_: the episode up to where most was lost
  double lost_ = 0, most_lost_ = 0;   // examples of the episode, counted from back()
};

}  // namespace ringtrain::monitor
