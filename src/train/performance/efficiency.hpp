#pragma once
#include <optional>

#include "ringtrain/host/signals.hpp"
#include "train/engine/engine.hpp"
#include "train/performance/past_runs.hpp"
#include "train/plan/run_context.hpp"

namespace ringtrain::train {

/// What the ranks reach beside one rank alone, as far as that is known: from --baseline, or from an
/// earlier run of the same configuration, which rank 0 keeps in the user's cache folder. What is
/// passed outlives it.
class Efficiency {
 public:
  Efficiency(const RunContext& run, const TrainingEngine& engine);

  /// Measures it in this job, before the first step, tells it, and keeps it for later jobs. Ends
  /// the job where it is less than --require-efficiency asks for. Collective.
  void measure(TrainingEngine& engine, const host::StopSignals& stop);
  /// Looks for what an earlier run kept, and tells. Ends the job where --require-efficiency needs
  /// one and there is none. Collective.
  void recall(const Position& start);
  /// Examples per second of one rank alone; on rank 0.
  std::optional<double> alone() const;
  /// What a whole run of one rank reached is kept for those of several.
  void keep_own(const metrics::StepTimes& run);
  /// Ends the job where the ranks together reached less than --require-efficiency asks for, by what
  /// was recalled. Rank 0's speed counts; a run of few steps is not judged. Collective.
  void require(const metrics::StepTimes& run) const;

 private:
  void keep(const PastRun& speed);
  void tell(const PastRun& speed);

  const RunContext run_;
  const PastRuns speeds_;
  std::optional<PastRun> recalled_;
  bool is_recalled_ = false;  // on all ranks
};

}  // namespace ringtrain::train
