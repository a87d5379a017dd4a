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
/// one rank alone. Measures the links in the first steps.
class SpeedHook final : public Hook {
 public:
  struct Parts {
    const RunPlan& plan;
    TrainingEngine& engine;
    const allreduce::MpiSession& session;
    monitor::Progress& progress;
    metrics::Reporter& output;
    StepLogger& log;
    Efficiency& efficiency;
  };
  /// All of it outlives the hook. `hosts`: of the ranks, on rank 0. `in_full`: the run is one that
  /// others are compared with, and links are worth measuring.
  SpeedHook(const Parts& parts, const std::vector<std::string>& hosts, bool in_full);

  /// Times the links from `start` on. Gradients are overwritten: before the first step. Collective.
  void measure_links(const Position& start);

  void before_step(const Position& position, host::StepRequest&) override {
    if (links_) links_->begin_step(position);
  }
  void step_timed(const StepReport& report, double wall_s) override {
    if (links_) links_->see(report, wall_s);
  }
  void after_step(const Position& position) override;

  /// For the closing table.
  StepLogger::Expected expected() const;
  /// Keeps what this run reached for later ones.
  void keep();

 private:
  void expect_past_speed();
  void expect_verdict();
  void keep_best();

  const Parts parts_;
  const bool in_full_;
  std::optional<LinkProbe> links_;  // where ranks gain from each other
  std::optional<KeptSpeeds> past_runs_;
  bool is_expected_ = false;  // of how long a step takes, something
};

}  // namespace ringtrain::train
