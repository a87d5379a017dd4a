#pragma once
#include "ringtrain/allreduce/mpi/session.hpp"
#include "ringtrain/monitor/progress.hpp"
#include "ringtrain/monitor/watchdog/watchdog.hpp"
#include "train/checkpoint/checkpoint_manager.hpp"
#include "train/loop/hook.hpp"
#include "train/loop/step_logger.hpp"
#include "train/plan/run_plan.hpp"

namespace ringtrain::train {

/// Tells the user of steps and evaluations, of samples that could not be read, and of what the
/// watchdog has noticed.
class LogHook final : public Hook {
 public:
  struct Parts {
    const RunPlan& plan;
    const allreduce::MpiSession& session;
    monitor::Progress& progress;
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

}  // namespace ringtrain::train
