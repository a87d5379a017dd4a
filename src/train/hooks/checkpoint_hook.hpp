#pragma once
#include "ringtrain/monitor/progress.hpp"
#include "train/checkpoint/checkpoint_manager.hpp"
#include "train/loop/hook.hpp"
#include "train/loop/stop_control.hpp"

namespace ringtrain::train {

/// Saves the training state when it is due or asked for: between steps, and between the batches of
/// an evaluation.
class CheckpointHook final : public Hook {
 public:
  /// `patience_s`: how long an evaluation waits for the copy of a save under way. What is passed
  /// outlives it.
  CheckpointHook(CheckpointManager& checkpoints, StopControl& control, monitor::Progress& progress,
                 double patience_s)
      : checkpoints_(checkpoints),
        control_(control),
        progress_(progress),
        patience_s_(patience_s) {}

  void before_step(const Position& position, host::StepRequest& request) override {
    request.save = checkpoints_.wants({position.step + 1});
  }
  void step_done(const StepReport& report) override { saving_shards_ = report.outcome.save; }
  void between_steps(Trainer& trainer) override;
  void before_evaluation(const Position&) override;
  void between_batches(const Position& position) override { offer(position); }
  void evaluated(const Position& position, const Evaluation&) override { offer(position); }

 private:
  void offer(const Position& position);

  CheckpointManager& checkpoints_;
  StopControl& control_;
  monitor::Progress& progress_;
  const double patience_s_;
  bool saving_shards_ = false;  // all ranks do, behind the last step
};

}  // namespace ringtrain::train
