#pragma once
// Room `metrics`: what a run reports and where it goes. Records are plain structs; `reporter`
// writes them to the terminal and to `sinks` (JSON lines, TensorBoard, HTML); `trace` keeps spans
// of threads for --timeline; `scaling` has the arithmetic of speed-up and links.
//
// Threads: the main thread, but for Timeline::add(), which any thread may call.
//
// Collective: only what gathers timelines. Rank 0 speaks; the others show events only.
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "ringtrain/metrics/scaling/link_model.hpp"
#include "ringtrain/metrics/scaling/speedup.hpp"
#include "ringtrain/metrics/scaling/step_phases.hpp"

namespace ringtrain::metrics {

/// What happens in a run, as lines for the user and as records of --metrics.

struct StartRecord {
  std::string configuration;  ///< canonical_config()
  std::string build;
  int ranks = 1;
  std::vector<std::string> hosts;
  std::int64_t step = 0;  ///< training goes on behind it
};

/// Seconds of a step over the ranks: the rank that spends most is named.
struct RankStatistics {
  double min = 0, median = 0, max = 0;
  int max_rank = 0;
};

/// How the ranks' steps differ.
struct PhaseSpread {
  std::array<RankStatistics, ledger_phases.size()> phases{};
  RankStatistics own_work;  ///< all of a rank's step but waiting for others and what comes between
  /// A few words for the user where a rank holds up the others, else empty.
  std::string slowest_text;

  RankStatistics& operator[](Phase phase) { return phases.at(ledger_place(phase)); }
  const RankStatistics& operator[](Phase phase) const { return phases.at(ledger_place(phase)); }
};

/// What the sums of a mean step came to, where there are several ranks.
struct SumsReached {
  /// Bytes a second, from the start of the first sum to the end of the last. Sums that wait for
  /// gradients, or for a slower rank, count as slow.
  double bus_bandwidth = 0;
  double exposed_share = 0;  ///< of the step
};

/// How fast the run is by its own measure (monitor/slowdown), once that is known.
struct SpeedShare {
  double share = 1;      ///< of the reference
  double reference = 0;  ///< examples a second
  bool slow = false;     ///< it was told that the run is slower
};

/// The mean step since the last record.
struct StepRecord {
  std::int64_t step = 0;
  double epoch = 0;
  double loss = 0;  ///< mean over all ranks, L2 included
  double l2 = 0;
  double epochs = 0;        ///< that training has in all; 0: not known
  double seconds_left = 0;  ///< of its steps, by the mean so far
  double learning_rate = 0;
  double examples_per_second = 0;  ///< over all ranks
  double seconds_per_batch = 0;
  PhaseSeconds phases;  ///< of rank 0
  /// Since this was last told; there is news of the ranks once a second only.
  std::optional<PhaseSpread> ranks = {};
  std::optional<SumsReached> sums = {};
  std::optional<SpeedShare> speed = {};
};

/// A training's best evaluation so far, by one of its figures.
struct BestEvaluation {
  std::string metric;  ///< "top1", "top5" or "loss"
  double value = 0;
  std::int64_t step = 0;
};

struct EvalRecord {
  std::int64_t step = 0;
  double top1 = 0, top5 = 0;  ///< fractions
  double loss = 0;
  std::int64_t examples = 0;
  std::optional<BestEvaluation> best = {};  ///< this one, or one before
};

/// What an evaluation came to class by class. Images that could not be read are not among them.
struct ClassRecord {
  struct Class {
    std::string name;
    /// With this label; taken for it; both.
    std::int64_t examples = 0, predicted = 0, right = 0;

    /// 0 where there is nothing to divide by, as scikit-learn has it.
    double precision() const { return predicted > 0 ? double(right) / double(predicted) : 0; }
    double recall() const { return examples > 0 ? double(right) / double(examples) : 0; }
    double f1() const {
      return examples + predicted > 0 ? 2 * double(right) / double(examples + predicted) : 0;
    }
  };
  /// Images of one class that were taken for one class, perhaps the same.
  struct Confusion {
    int label = 0, predicted = 0;
    std::int64_t examples = 0;
  };
  /// Images that the network was about as sure of.
  struct Confidence {
    std::int64_t examples = 0;
    double confidence = 0, accuracy = 0;  ///< means
  };
  struct Image {
    std::string name, label, predicted;
    double probability = 0;  ///< of what was predicted
    double loss = 0;
    std::string png = {};  ///< the image, small; empty: it cannot be shown
  };
  std::int64_t step = 0;
  std::vector<Class> classes = {};           ///< by label
  std::vector<Confusion> confusions = {};    ///< by label and prediction, none of no images
  std::vector<Confidence> confidences = {};  ///< parts of 0..1 of equal width
  std::vector<Image> worst = {};             ///< of the largest losses

  /// The mean difference between confidence and accuracy (ECE: Guo et al. 2017,
  /// arXiv:1706.04599).
  double calibration_error() const {
    double error = 0, examples = 0;
    for (const Confidence& c : confidences) {
      error += double(c.examples) * std::abs(c.confidence - c.accuracy);
      examples += double(c.examples);
    }
    return examples > 0 ? error / examples : 0;
  }
};

/// A checkpoint that is durable.
struct CheckpointRecord {
  std::int64_t step = 0;
  std::string file = {};
  std::uint64_t bytes = 0;
  double seconds = 0;        ///< until it was durable
  double stall_seconds = 0;  ///< of training
};

struct EventRecord {
  std::string what;  ///< a word, such as save_failed
  int rank = 0;
  std::string text;
};

/// All of this process, which may have gone on from a checkpoint.
struct EndRecord {
  std::int64_t steps = 0, examples = 0;
  double seconds = 0, examples_per_second = 0;
  std::optional<double> top1 = {};
  std::optional<BestEvaluation> best = {};
  std::vector<PhaseSeconds> ranks = {};  ///< in all of it, by rank
  std::optional<SumsReached> sums = {};
  std::optional<double> expected_step_s = {};  ///< as the links' verdict had it
  std::optional<double> efficiency = {};       ///< by what is known of one rank alone
};

/// One of them; ScalingResult is of --baseline.
using Record = std::variant<StartRecord, StepRecord, EvalRecord, ClassRecord, CheckpointRecord,
                            EventRecord, ScalingResult, ScalingForecast, EndRecord>;

}  // namespace ringtrain::metrics
