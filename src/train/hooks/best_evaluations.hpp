#pragma once
#include <optional>
#include <string>

#include "ringtrain/base/clock.hpp"
#include "ringtrain/config/options.hpp"
#include "ringtrain/metrics/records.hpp"
#include "train/checkpoint/checkpoint_manager.hpp"
#include "train/loop/hook.hpp"
#include "train/loop/step_logger.hpp"
#include "train/plan/run_context.hpp"

namespace ringtrain::train {

/// Follows a training's evaluations: keeps the best one's weights (--keep-best), and tells when
/// training has reached what it is to (--until), or no longer gets better (--patience). It comes
/// before the LogHook, whose lines say the best.
class BestEvaluations final : public Hook {
 public:
  struct Parts {
    RunContext run;
    StepLogger& log;
    CheckpointManager& checkpoints;
    const Stopwatch& since_start;  ///< of the process
  };
  /// `before`: CheckpointMetadata::best of what is gone on from. What is passed outlives it.
  BestEvaluations(const Parts& parts, const std::string& before);

  void evaluated(const Position& position, const Evaluation& result) override;
  /// By --until or --patience. All ranks say the same.
  bool ends_training() const { return ends_; }

 private:
  config::Metric metric() const;
  bool is_followed() const;
  std::string text() const;
  void read(const std::string& before);
  /// Whether that is the best evaluation so far.
  bool is_best(double value) const;
  /// Saves that step as the best one, which it stays only where that has begun.
  void keep(const Position& position);
  /// What rank 0 alone knows, of its saves. Collective.
  bool rank_0_says(bool mine) const;
  void judge(std::optional<double> now);

  const Parts parts_;
  // What best.h5 has, or will have, and what it had before the last save of it.
  std::optional<metrics::BestEvaluation> best_, kept_, before_;
  std::int64_t evaluated_ = -1;  // the last step that was
  int since_ = 0;                // evaluations behind it
  bool ends_ = false;
};

}  // namespace ringtrain::train
