#pragma once
// Room `train/performance`: measures what a run could reach - links, shares of the batch, one rank
// alone - and tells the user. It changes no bit of a training but what the user lets it choose.
//
// Thread: main. Collective; gradients are overwritten, so it works between steps only.
//
// What a run reached is kept in the user's cache folder, for later ones to be compared with.
#include <optional>
#include <vector>

#include "ringtrain/metrics/reporter/reporter.hpp"
#include "ringtrain/metrics/scaling/link_model.hpp"
#include "train/engine/engine.hpp"
#include "train/plan/run_plan.hpp"

namespace ringtrain::train {

/// Says early in a run what steps will take and what the links between the ranks cost: from sums
/// that are timed before the first step and from what the first steps compute.
class LinkProbe {
 public:
  /// Times sums of the step's own buckets, each up to three times, for about a second at most.
  /// Gradients are overwritten: before the first step. What is passed outlives it. Collective.
  LinkProbe(const RunPlan& plan, EngineProbe& engine, const allreduce::MpiSession& session,
            monitor::Progress& progress, metrics::Reporter& output, Position start);

  /// A step is over, `wall_s` after the one before.
  void see(const StepReport& report, double wall_s);
  /// Whether it is time for judge(), with `next` behind all steps that were begun. The same on all
  /// ranks.
  bool is_due(const Position& next) const;
  /// Between steps, when all that were begun are over: gives the verdict, unless too few were timed
  /// yet. Where links are too slow, CPUs compute a larger batch for it, for some two seconds at
  /// most, if they `may_time` one. Collective.
  void judge(bool may_time);
  /// What a step was expected to take, once that was told.
  const std::optional<metrics::Forecast>& expected() const { return expected_; }

 private:
  static constexpr int warm_up = 2;                 // steps that do not count
  static constexpr std::uint64_t least_steps = 12;  // then the first verdict is possible,
  static constexpr std::uint64_t most_steps = 48;   // and then there is one

  std::vector<metrics::TimedSum> time_sums(monitor::Progress& progress);
  double seconds_of(const Range& bucket, monitor::Progress& progress);
  bool enough() const;
  bool may_narrow() const;
  int most_of_a_rank() const;
  std::optional<double> share_compressed() const;
  std::string command_of(const metrics::ScalingForecast& verdict) const;
  /// Whether that command's learning rate may be too high; empty: it is not.
  std::string caution_of(const metrics::ScalingForecast& verdict) const;
  /// Where it makes the step of `now` at least a tenth shorter. Collective.
  std::optional<metrics::OtherShares> better_shares(const metrics::StepParts& step,
                                                    const metrics::Forecast& now) const;
  double bytes_of(const Range& bucket) const;
  metrics::StepParts parts() const;
  /// Seconds of step.images_s that grow with the images: waiting for data, and what does in
  /// batches of up to `batch` images of a rank, which are computed. None where they are not, or
  /// take too long, or show nothing. Rank 0's `batch` counts. Collective.
  std::optional<double> time_growing(const metrics::StepParts& step, int batch) const;

  const RunPlan& plan_;
  EngineProbe& engine_;
  const allreduce::MpiSession& session_;
  monitor::Progress& progress_;
  metrics::Reporter& output_;
  const std::uint64_t start_;         // the run's first step
  std::uint64_t due_;                 // the step to look at
  const std::vector<Range> buckets_;  // in the order of their sums
  metrics::LinkModel link_;
  int seen_ = 0;
  double seen_s_ = 0;                                   // of the steps that count
  std::vector<double> compute_s_, waits_s_, update_s_;  // of each measured step
  std::vector<std::vector<double>> leads_s_;            // of each bucket, in each step
  std::optional<metrics::Forecast> expected_;
};

}  // namespace ringtrain::train
