#pragma once
// Room `metrics/scaling`: the arithmetic of speed. `link_model` forecasts a step from timed sums
// and says what would help, `speedup` compares all ranks with one, `step_phases` adds up where the
// time of steps went. The phases themselves are in `phase`.
//
// Threads: any; these are values.
// Collective: nothing.
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ringtrain/allreduce/ring/tuning.hpp"

namespace ringtrain::metrics {

/// A sum over the ranks that was timed: bytes of a rank's buffer, seconds until the result was
/// there.
struct TimedSum {
  double bytes = 0, seconds = 0;
};

/// What a sum takes: a fixed time, and one that grows with its bytes.
struct LinkModel {
  double latency_s = 0, s_per_byte = 0;
  int at_once = 1;             ///< sums that may be under way
  double busy_s_per_byte = 0;  ///< of s_per_byte what no other sum can use; for several at once
  double seconds(double bytes) const { return latency_s + bytes * s_per_byte; }
};

/// The link that explains `sums` best (least squares of the relative errors), neither term
/// negative. No sums: one that takes no time.
LinkModel fit_link(std::span<const TimedSum> sums);

/// What each rank's link carries for such a sum, bytes a second: comparable between numbers of
/// ranks. 0 where no time passed.
double bus_bandwidth(double bytes, double seconds, int ranks);

/// Gradients that are summed together.
struct Bucket {
  double bytes = 0;
  double lead_s = 0;  ///< before the end of the backward pass they are final
};

/// A training step in parts.
struct StepParts {
  double images_s = 0;  ///< computing that grows with the images of the step
  double update_s = 0;  ///< computing that does not
  /// Computing that grows with the batches of the step only: weights are read and their gradients
  /// written. Part of neither of the two above.
  double batch_s = 0;
  std::vector<Bucket> buckets = {};  ///< in the order of their sums
  bool overlaps = true;              ///< whether sums run while backward does

  /// With so many times the images in each batch: leads are longer, too.
  StepParts with_images(double times) const;
  /// With up to so many seconds as images_s; the rest of it is what each batch takes.
  StepParts with_growing(double seconds) const;
  /// With so many times the batches in a step: only the last one's backward pass hides sums.
  StepParts with_batches(double times) const;
  /// With gradients of so many times the bytes.
  StepParts with_bytes(double times) const;
};

/// What a step will come to.
struct Forecast {
  double compute_s = 0, exposed_s = 0;
  double sums_s = 0;  ///< all sums, if nothing hid them
  double step_s() const { return compute_s + exposed_s; }
  /// The share of the step in which the ranks compute; 1 for a step of no time.
  double efficiency() const { return step_s() > 0 ? compute_s / step_s() : 1; }
};

/// Sums start when their bucket is final and fewer than `at_once` are under way, of which the link
/// carries one after the other; the step ends with the last. Without overlap all start when
/// backward has ended.
Forecast forecast(const StepParts& step, const LinkModel& link);

/// Another batch of each rank, and what its step will take.
struct LargerBatch {
  int batch = 0;
  bool narrow = false;  ///< gradients travel in 16 bits
  Forecast step = {};
  double speed_up = 1;  ///< images a second over those now
};

/// Another division of the same samples among the ranks, and what a step will take.
struct OtherShares {
  std::vector<int> shares;  ///< by rank
  Forecast step = {};
};

/// What the links between the ranks allow, and what to do where that is too little.
struct ScalingForecast {
  int ranks = 1;
  int buckets = 0;
  double bytes = 0;  ///< that each rank gives to the sums of a step
  LinkModel link = {};
  Forecast step = {};
  double target = 0;  ///< efficiency that is wanted
  /// The smallest --batch of a rank, and --accumulate, that reach it; none where the step does
  /// already, or up to 1024 times as much does not.
  std::optional<int> batch = {}, accumulate = {};
  std::optional<double> narrow = {};  ///< efficiency with gradients in 16 bits, where there are any
  /// Efficiency with compressed gradients, where they can be, if compressing took no time.
  std::optional<double> compressed = {};
  /// `batch`, where there is one, with what else makes it faster.
  std::optional<LargerBatch> larger = {};
  /// Where ranks are not equally fast, and this makes a step at least a tenth shorter.
  std::optional<OtherShares> shares = {};
  std::optional<allreduce::RingChoice> ring =
      {};  ///< how sums travel between hosts, where that was measured

  bool well() const { return step.efficiency() >= target; }
};

/// What a verdict is about.
struct LinkSituation {
  StepParts step;
  LinkModel link;
  int ranks = 1;
  int batch = 1, accumulate = 1;  ///< of a rank, as they are
  bool may_narrow = false;        ///< gradients are fp32 and could travel in 16 bits
  /// Share of the bytes that --compress powersgd:4 would leave, where it can be had.
  std::optional<double> compressed = {};
  double target = 0;
};
ScalingForecast judge(const LinkSituation& now);

/// For the user, line by line: one where all is well, another with what to do where it is not;
/// `details`: with a table. `command`: that starts the job with verdict.larger, for a shell; empty:
/// none is told.
std::vector<std::string> verdict_lines(const ScalingForecast& verdict, bool details,
                                       const std::string& command = {});

}  // namespace ringtrain::metrics
