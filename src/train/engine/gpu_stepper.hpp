#pragma once
#include <deque>
#include <memory>

#include "ringtrain/compute/gpu.hpp"
#include "ringtrain/monitor/progress.hpp"
#include "train/engine/stepper.hpp"

namespace ringtrain::train {

/// Steps on a GPU: queued, and reported once the GPU is done with them, some steps later.
/// A `training` that is not its own outlives it.
class GpuStepper final : public Stepper {
 public:
  static constexpr int most_ahead = 2;

  /// `first_lead`: how long before the end of the backward pass the first sum starts, as a share.
  /// `ahead`: steps that the host may be in front of the GPU.
  GpuStepper(compute::GpuTraining& training, const StepSettings& settings, Position start,
             double first_lead, int ahead, monitor::Progress& progress);
  /// From the beginning, with a training of its own.
  GpuStepper(std::unique_ptr<compute::GpuTraining> training, const StepSettings& settings,
             monitor::Progress& progress);

  std::optional<StepReport> step(io::Loader& loader, const host::StepRequest& request) override;
  std::optional<StepReport> finish_step() override { return take(0); }

 private:
  struct UnderWay {
    Position position;
    double learning_rate = 0;
    metrics::PhaseSeconds seconds = {};  // of the host
  };
  std::optional<StepReport> take(int still_under_way);
  void record(const compute::GpuOutcome& outcome, std::uint64_t step);

  const std::unique_ptr<compute::GpuTraining> own_;
  compute::GpuTraining& training_;
  const double first_lead_ = 0;
  const int ahead_ = most_ahead;
  monitor::Progress& progress_;
  std::deque<UnderWay> under_way_;
  metrics::Timeline::Clock::time_point recorded_{};  // the end of the step of the GPU recorded last
};

}  // namespace ringtrain::train
