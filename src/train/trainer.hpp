#pragma once
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ringtrain/base/clock.hpp"
#include "ringtrain/host/signals.hpp"
#include "ringtrain/monitor/watchdog/watchdog.hpp"
#include "train/checkpoint/checkpoint_manager.hpp"
#include "train/checkpoint/resume.hpp"
#include "train/engine/engine.hpp"
#include "train/evaluation.hpp"
#include "train/performance/efficiency.hpp"
#include "train/performance/link_probe.hpp"
#include "train/performance/past_runs.hpp"
#include "train/plan/run_plan.hpp"
#include "train/resume_verification.hpp"
#include "train/run_log.hpp"
#include "train/state/replica_check.hpp"

namespace ringtrain {

/// One training job on one rank, on the main thread. Its members are collective but for those that
/// only ask.
class Trainer {
 public:
  /// What is passed outlives it. `since_start`: of the process; `most_steps`: after which it pauses
  /// as if training had ended, 0: never.
  Trainer(const RunPlan& plan, TrainingEngine& engine, const MpiSession& session,
          Watchdog& watchdog, Reporter& output, const Stopwatch& since_start,
          std::uint64_t most_steps = 0);

  int run(WriterProcess& writer);
  /// All of run() that comes before the first step. Returns the exit code; a failure ends the job
  /// as it would there.
  int rehearse(WriterProcess& writer);
  /// After a run: ends the job where its efficiency was not what the user asks for.
  void require_efficiency() const;
  /// What a run that is over came to.
  LegEnd end() const;

 private:
  /// Whether there is something to go on from, which is loaded then.
  bool prepare(WriterProcess& writer);
  void try_sum();
  /// Takes the checkpoint directory, so that no other job writes to it from here on.
  void open_checkpoints(WriterProcess& writer);
  /// Ends the job where `saved`, which training goes on from, would have settled other shares or
  /// another gradient format than are in use.
  void require_settled_as(const CheckpointMetadata& saved) const;
  /// Goes on from a checkpoint, where there is one.
  bool resume(const Resume& how);
  /// Where training begins, for the line that tells of a fault.
  void tell_context() const;
  /// Inherits the lineage of what was resumed, or draws one. Ends the job where the checkpoint
  /// directory is another training's.
  void take_lineage();
  /// Takes the weights of another training, where there is one.
  bool start_from(const std::string& file);
  int train();
  int exit_code() const;
  bool done(const Position& position) const;
  /// Until training is done, if nothing stops it.
  std::uint64_t steps_left() const;
  int train_to_the_end(Stepper& trainer, Loader& loader, CheckpointManager& checkpoints);
  int evaluate_only(bool loaded);
  [[noreturn]] void fail_without_weights() const;
  /// Measures and tells what the ranks gain over one; ends the job where that is too little.
  void compare_with_one_rank();
  const Graph& graph() const { return plan_.model.graph; }
  const Options& options() const { return plan_.options; }
  std::vector<std::string> changes_since(const std::string& config) const;
  StartRecord start_record() const;
  CheckpointMetadata metadata() const;
  CheckpointManager make_checkpoints();
  void step(Stepper& trainer, Loader& loader, CheckpointManager& checkpoints);
  void finish_steps(Stepper& trainer);
  void tell(const StepReport& report, double stall_s, bool saving);
  void record(Doing doing, Timeline::Clock::time_point begin, std::uint64_t step);
  void keep_timeline();
  /// What the log compares this run's speed with: that of an earlier run of the same command, or
  /// what the links' verdict expects.
  void expect_earlier_speed();
  void expect_verdict();
  void keep_speed();
  void note_saved(const SaveEvent& event);
  void look_at(const StepReport& report);
  void guard(const StepOutcome& outcome, const Position& position);
  /// `offer` is called between batches.
  void evaluate_at(const Position& position, const std::function<void()>& offer);
  bool save_unsaid_ = false;  // a SIGUSR1 that came at the end of an evaluation
  void tell_cut_short(const Position& position, const Evaluation& result);
  /// What this rank wants; to save is told once.
  StepRequest request();
  bool out_of_time() const;
  /// All ranks alike.
  void grant(const StepRequest& request);
  /// Saves what is due or asked for.
  void offer(CheckpointManager& checkpoints, const Position& position);

  const Stopwatch run_watch_;
  const MpiSession& session_;
  Watchdog& watchdog_;
  Progress& progress_;
  Reporter& output_;
  const RunPlan& plan_;
  TrainingEngine& engine_;
  const std::uint64_t most_steps_;
  const std::string config_, plans_;
  CheckpointWriter checkpoint_writer_;
  std::optional<StepLogger> log_;
  std::optional<ReplicaCheck> ranks_;
  Efficiency efficiency_;
  std::optional<LinkProbe> links_;  // where ranks gain from each other
  std::optional<KeptSpeeds> earlier_runs_;
  bool is_expected_ = false;  // of how long a step takes, something

  StopSignals stop_;
  Stopwatch step_watch_;
  double slowest_step_s_ = 0;
  Position start_, end_;
  std::filesystem::path resumed_from_;          // on rank 0
  std::optional<std::string> resumed_lineage_;  // nothing: from scratch
  std::vector<std::string> hosts_;              // of the ranks; on rank 0
  std::optional<std::uint64_t> evaluated_step_;
  bool stopping_ = false, saving_ = false;  // what all ranks want
  bool saving_shards_ = false;              // likewise, behind the last step
  int signal_ = 0;                          // that ends the job, on all ranks
  double last_save_s_ = 0;                  // what it may take
};

}  // namespace ringtrain
