#pragma once
#include <functional>
#include <string>

#include "ringtrain/allreduce/mpi/session.hpp"
#include "train/engine/engine.hpp"
#include "train/loop/hook.hpp"
#include "train/loop/step_logger.hpp"
#include "train/plan/run_plan.hpp"

namespace ringtrain::train {

/// Ends the job, or leaves the step out (--on-nan), where the loss or a gradient is not finite.
/// Names the tensor.
class NonFiniteGuard final : public Hook {
 public:
  /// `before_end` is called before the job ends. What is passed outlives it.
  NonFiniteGuard(const RunPlan& plan, TrainingEngine& engine, const allreduce::MpiSession& session,
                 StepLogger& log, std::function<void()> before_end)
      : plan_(plan),
        engine_(engine),
        session_(session),
        log_(log),
        before_end_(std::move(before_end)) {}

  void step_done(const StepReport& report) override;

 private:
  std::string what_is_not_finite(const StepOutcome& outcome) const;

  const RunPlan& plan_;
  TrainingEngine& engine_;
  const allreduce::MpiSession& session_;
  StepLogger& log_;
  const std::function<void()> before_end_;
};

}  // namespace ringtrain::train
