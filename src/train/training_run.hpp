#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ringtrain/monitor/watchdog/watchdog.hpp"
#include "train/hooks/best_evaluations.hpp"
#include "train/loop/step_logger.hpp"
#include "train/loop/stop_control.hpp"
#include "train/performance/efficiency.hpp"
#include "train/resume_verification.hpp"
#include "train/run_checkpoints.hpp"

namespace ringtrain::train {

class Evaluator;
class SpeedHook;

/// One run on one rank, on the main thread: what comes before the training loop (state, loader,
/// hooks), the loop, and what comes behind it (the last save and evaluation, the closing table).
/// Its members are collective but for those that only ask.
class TrainingRun {
 public:
  /// What is passed outlives it. `since_start`: of the process; `most_steps`: after which it pauses
  /// as if training had ended, 0: never.
  TrainingRun(const RunContext& run, TrainingEngine& engine, monitor::Watchdog& watchdog,
              const Stopwatch& since_start, std::uint64_t most_steps = 0);

  /// Trains, or evaluates with --eval-only. Returns the exit code.
  int run(io::WriterProcess& writer);
  /// All of run() that comes before the first step. Returns the exit code; a failure ends the job
  /// as it would there.
  int dry_run(io::WriterProcess& writer);
  /// After a run: ends the job where its efficiency was not what the user asks for.
  void require_efficiency() const;
  /// What a run that is over came to.
  PartResult end() const;

 private:
  const config::Options& options() const { return run_.options(); }
  void prepare(io::WriterProcess& writer);
  void test_allreduce();
  int evaluate_only();
  int train();
  int train_to_the_end(Stepper& stepper, io::Loader& loader, CheckpointManager& checkpoints);
  /// The last save, the last evaluation, and the closing table. Returns the exit code.
  int finish(CheckpointManager& checkpoints, Evaluator& evaluator, SpeedHook& speed);
  void keep_last_step(CheckpointManager& checkpoints);
  /// Tells why training ended early, where that is no failure.
  void note_ending(const Position& position);
  bool done(const Position& position) const;
  /// Until training is done, if nothing stops it.
  std::uint64_t steps_left() const;
  io::LoaderOptions loader_options();
  /// What is there of it on rank 0, before all is given up.
  void keep_timeline();

  const RunContext run_;
  monitor::Watchdog& watchdog_;
  TrainingEngine& engine_;
  const Stopwatch since_start_;
  const std::uint64_t most_steps_;
  RunCheckpoints checkpoints_;
  StopControl control_;
  std::optional<StepLogger> log_;
  Efficiency efficiency_;
  StartingState start_;
  std::optional<BestEvaluations> best_;
  Position end_;
  std::vector<std::string> hosts_;  // of the ranks; on rank 0
};

}  // namespace ringtrain::train
