#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ringtrain/allreduce/mpi/session.hpp"
#include "ringtrain/io/checkpoint_writer/checkpoint_writer.hpp"
#include "ringtrain/metrics/reporter/reporter.hpp"
#include "ringtrain/monitor/imbalance_detector.hpp"
#include "ringtrain/monitor/slowdown/slowdown_report.hpp"
#include "train/checkpoint/checkpoint_manager.hpp"
#include "train/checkpoint/save_alerts.hpp"
#include "train/engine/stepper.hpp"
#include "train/loop/hook.hpp"
#include "train/plan/run_plan.hpp"

namespace ringtrain::train {

/// Keeps this rank's account of a run and tells the user through `output`, which on all ranks but
/// the first shows events only.
class StepLogger {
 public:
  /// `hosts` of the ranks, on rank 0 alone: it tells how their steps differ and why they become
  /// slow, from the accounts that `ask` gets. Without hosts nothing is asked. What is passed, and
  /// what `ask` refers to, outlives this object.
  StepLogger(metrics::Reporter& output, const RunPlan& plan, Position start, int rank,
             const std::vector<std::string>& hosts = {}, monitor::SlowdownReporter::Ask ask = {});

  /// A step is over, `wall_seconds` after the one before: what it does not account for is `other`.
  /// `checkpoint_seconds` of it were spent waiting for a save. Returns where its time went.
  metrics::PhaseSeconds step(const StepReport& report, double wall_seconds,
                             double checkpoint_seconds);
  void evaluation(std::uint64_t step, const Evaluation& result);
  /// Evaluations from here on say so.
  void set_best(const metrics::BestEvaluation& best) { best_ = best; }
  /// `stall_seconds`: what its copy cost the step loop.
  void save(const io::SaveEvent& event, double stall_seconds);
  void event(const std::string& what, const std::string& text) {
    output_.write(metrics::EventRecord{what, rank_, text});
  }
  /// What all ranks see alike, so that one tells it.
  void event_of_all(const std::string& what, const std::string& text) {
    if (rank_ == 0) event(what, text);
  }
  /// Null without hosts.
  monitor::SlowdownReporter* slowdowns() { return slowdowns_ ? &*slowdowns_ : nullptr; }
  /// Whether, since the last call, a slow-down was reported that a link between hosts may explain.
  bool take_links_suspected() { return std::exchange(links_suspected_, false); }
  /// What a run's speed is measured against, where it is known.
  struct Expected {
    std::optional<double> step_s = {};  ///< by the links' verdict
    std::optional<double> alone = {};   ///< examples per second of one rank alone
  };
  /// The closing table of a run that ends at `end`. Collective: it shows all ranks' phases.
  void finish(const Position& end, const SaveCounts& saves, const allreduce::MpiSession& session,
              const Expected& expected);
  /// Of this rank's steps so far.
  const metrics::StepTimes& times() const { return times_; }
  /// `failure` of the last save, with what is left to go on from.
  Error with_last_good(const Error& failure) const;

 private:
  void tell(const StepReport& report);
  void tell(const monitor::SlowdownReporter::Report& change);
  void compare_ranks();
  std::optional<metrics::PhaseSpread> differences();
  void trouble(const std::string& what, const io::SaveEvent& event);
  double epoch(const Position& position) const;
  double seconds_left(std::uint64_t step) const;
  std::optional<metrics::SumsReached> reached(double sums_s, double exposed_s, double step_s) const;

  metrics::Reporter& output_;
  const RunPlan& plan_;
  Position start_;
  std::uint64_t last_step_;
  int rank_;
  const monitor::SlowdownReporter::Ask ask_;
  std::optional<monitor::ImbalanceDetector> imbalance_, stragglers_;
  double compared_s_ = 0;  // of seconds_, when stragglers were last looked for
  std::vector<monitor::RankStats> accounts_;
  std::optional<monitor::SlowdownReporter> slowdowns_;
  metrics::StepTimes times_;
  double seconds_ = 0, rate_ = 0;
  std::optional<metrics::EvalRecord> accuracy_;
  std::optional<metrics::BestEvaluation> best_;
  SaveAlerts saves_;
  std::string checkpoint_file_;  // the last good one
  bool links_suspected_ = false;
};

}  // namespace ringtrain::train
