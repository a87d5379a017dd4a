#pragma once
#include <optional>
#include <string>
#include <vector>

#include "ringtrain/allreduce/ring/tuning.hpp"
#include "ringtrain/metrics/reporter/reporter.hpp"
#include "train/engine/engine.hpp"

namespace ringtrain::train {

/// Steps that tried several plans for their sums in turn, one plan a step, and which was fastest.
class SumTrials {
 public:
  /// `plans`: at least one; the first is the one to beat.
  explicit SumTrials(std::vector<allreduce::SumPlan> plans);

  /// Of the step that is next.
  const allreduce::SumPlan& plan() const { return plans_[steps_ % plans_.size()]; }
  const allreduce::SumPlan& plan_of(std::size_t which) const { return plans_[which]; }
  /// That step took so long.
  void see(double step_s);
  /// How often each plan was tried; none while a round is under way.
  std::optional<std::size_t> rounds() const;
  std::size_t steps() const { return steps_; }
  double spent_s() const { return spent_s_; }

  /// The fastest plan; but the first, unless one took less than 0.95 of its time in the median of
  /// all rounds, and less than it in three of four. After the first round.
  std::size_t best() const;
  /// In the order of the plans: the median of their steps.
  std::vector<allreduce::TriedPlan> tried() const;

 private:
  const std::vector<allreduce::SumPlan> plans_;
  std::vector<std::vector<double>> seconds_;  // of each plan, in each round
  std::size_t steps_ = 0;
  double spent_s_ = 0;
};

/// Finds in the first steps of a run how its sums between hosts travel fastest. The steps train as
/// others do: no plan changes a bit. All ranks make one, for the same steps.
class SumTuner {
 public:
  /// What is passed outlives it. `report`: the first plan stays, whatever is found, which is told
  /// in a table.
  SumTuner(TrainingEngine& engine, const allreduce::MpiSession& session, metrics::Reporter& output,
           bool report);

  /// Before a step: how its sums travel. Returns whether more steps are to be tried. Collective.
  bool begin_step();
  /// Whether the sums of the step under way start late, to try that.
  bool tries_late() const { return seen_ >= warm_up && trials_.plan().late; }
  /// That step took so long, by this rank's clock.
  void see(double step_s);
  /// Of all steps so far.
  std::vector<allreduce::TriedPlan> tried() const { return trials_.tried(); }

 private:
  static constexpr int warm_up = 2;  // steps that do not count
  static constexpr std::size_t least_rounds = 4, most_rounds = 8;
  static constexpr double enough_s = 2;  // then no further round

  bool enough() const;
  void settle();

  TrainingEngine& engine_;
  const allreduce::MpiSession& session_;
  metrics::Reporter& output_;
  const bool report_;
  SumTrials trials_;
  int seen_ = 0;
};

}  // namespace ringtrain::train
