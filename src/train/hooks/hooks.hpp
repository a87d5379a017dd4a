#pragma once
// Room `train/hooks`: what happens around the steps - logging, checks, saves, comparisons of speed.
// Each is a Hook of `loop`, which calls them in the order that `training_run.cpp` lists.
//
// Thread: main. Hooks run on all ranks and decide alike, by what the sums of a step brought.
//
// A hook that wants all ranks to do something asks for it with the sums of the next step.
#include <deque>
#include <functional>
#include <string>

#include "ringtrain/monitor/watchdog/watchdog.hpp"
#include "train/checkpoint/checkpoint_manager.hpp"
#include "train/engine/engine.hpp"
#include "train/loop/hook.hpp"
#include "train/loop/step_logger.hpp"
#include "train/loop/stop_control.hpp"
#include "train/loop/trainer.hpp"
#include "train/plan/run_context.hpp"
#include "train/state/replica_check.hpp"

namespace ringtrain::train {

/// Tells the user of steps and evaluations, of samples that could not be read, and of what the
/// watchdog has noticed.
class LogHook final : public Hook {
 public:
  struct Parts {
    RunContext run;
    StepLogger& log;
    monitor::Watchdog* watchdog = nullptr;           ///< null: none has notices
    io::Loader* loader = nullptr;                    ///< null: as there is none
    const CheckpointManager* checkpoints = nullptr;  ///< null: nothing is saved
  };
  /// All of it outlives the hook.
  explicit LogHook(const Parts& parts) : parts_(parts) {}

  void before_step(const Position&, host::StepRequest&) override;
  void step_timed(const StepReport& report, double wall_s) override;
  void after_step(const Position&) override;
  void evaluated(const Position& position, const Evaluation& result) override;

 private:
  const Parts parts_;
  double stalled_s_ = 0;  // by saves, up to the step told last
};

/// Ends the job, or leaves the step out (--on-nan), where the loss, a gradient or a statistic is
/// not finite. Names the tensor. Ends it also where a save was refused, as the state is not finite.
class NonFiniteGuard final : public Hook {
 public:
  /// `before_end` is called before the job ends. What is passed outlives it.
  NonFiniteGuard(const RunContext& run, TrainingEngine& engine, StepLogger& log,
                 const CheckpointManager& checkpoints, std::function<void()> before_end)
      : run_(run),
        engine_(engine),
        log_(log),
        checkpoints_(checkpoints),
        before_end_(std::move(before_end)) {}

  void step_done(const StepReport& report) override;

 private:
  /// Collective.
  [[noreturn]] void end(const std::string& text) const;
  std::string what_is_not_finite(const StepOutcome& outcome) const;

  const RunContext run_;
  TrainingEngine& engine_;
  StepLogger& log_;
  const CheckpointManager& checkpoints_;
  const std::function<void()> before_end_;
};

/// Compares the ranks' training states when that is due (--check-every), before a step is saved.
class ReplicaCheckHook final : public Hook {
 public:
  /// What is passed outlives it.
  ReplicaCheckHook(ReplicaCheck& check, CheckpointManager& checkpoints)
      : check_(check), checkpoints_(checkpoints) {}

  void between_steps(Trainer& trainer) override {
    const bool last = trainer.is_last();
    if (!check_.due(trainer.position().step, last)) return;
    trainer.drain();  // a GPU's steps are waited for with a limit, its state is not
    compare(trainer.position(), last);
  }
  /// A check where one is due at `position`. Collective.
  void compare(const Position& position, bool last) {
    check_.offer(position.step, last, [&] { checkpoints_.keep_nothing(); });
  }

 private:
  ReplicaCheck& check_;
  CheckpointManager& checkpoints_;
};

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

  void before_step(const Position& position, host::StepRequest& request) override;
  void step_done(const StepReport& report) override;
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
  std::deque<std::uint64_t> saving_shards_;  // behind these steps all ranks do
};

}  // namespace ringtrain::train
