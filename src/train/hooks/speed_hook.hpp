#pragma once
#include <optional>
#include <string>
#include <vector>

#include "train/loop/hook.hpp"
#include "train/loop/step_logger.hpp"
#include "train/performance/efficiency.hpp"
#include "train/performance/link_probe.hpp"
#include "train/performance/past_runs.hpp"

namespace ringtrain::train {

/// What the run's speed is compared with: an earlier run of the same command, what the links allow,
/// one rank alone. Measures the links in the first steps, and again when they may have become slow.
class SpeedHook final : public Hook {
 public:
  struct Parts {
    RunContext run;
    TrainingEngine& engine;
    StepLogger& log;
    Efficiency& efficiency;
  };
  /// All of it outlives the hook. `hosts`: of the ranks, on rank 0. `in_full`: the run is one that
  /// others are compared with, and links are worth measuring.
  SpeedHook(const Parts& parts, const std::vector<std::string>& hosts, bool in_full);

  /// Times the links from `start` on. Gradients are overwritten: before the first step. Collective.
  void measure_links(const Position& start);

  void before_step(const Position&, host::StepRequest& request) override {
    request.measure_links = !host_links_.empty() && parts_.log.take_links_suspected();
  }
  void step_done(const StepReport& report) override {
    links_due_ = links_due_ || report.outcome.measure_links;
    saves_shards_ = report.outcome.save;
  }
  void between_steps(Trainer& trainer) override;
  void step_timed(const StepReport& report, double wall_s) override {
    if (links_) links_->see(report, wall_s);
    last_step_s_ = wall_s;
  }

  /// For the closing table.
  StepLogger::Expected expected() const;
  /// Keeps what this run reached for later ones.
  void keep();

 private:
  void compare_host_links();
  void expect_past_speed();
  void keep_best();

  const Parts parts_;
  const bool in_full_;
  const std::vector<std::string> hosts_;  // by rank, on rank 0
  std::optional<LinkProbe> links_;        // where ranks gain from each other
  std::vector<double> host_links_;        // at the start; none where CPUs sum over none
  bool links_due_ = false, saves_shards_ = false;
  double last_step_s_ = 0;
  std::optional<PastRuns> past_runs_;
};

}  // namespace ringtrain::train
