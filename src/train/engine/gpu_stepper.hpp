#pragma once
#include <deque>
#include <memory>

#include "ringtrain/compute/gpu.hpp"
#include "ringtrain/monitor/progress.hpp"
#include "train/engine/stepper.hpp"

namespace ringtrain {

/// Steps on a GPU: queued, and reported once the GPU is done with them, two steps later at most.
/// A `training` that is not its own outlives it.
class GpuStepper final : public Stepper {
 public:
  /// `first_lead`: how long before the end of the backward pass the first sum starts, as a share.
  GpuStepper(GpuTraining& training, const StepSettings& settings, Position start, double first_lead,
             Progress& progress);
  /// From the beginning, with a training of its own.
  GpuStepper(std::unique_ptr<GpuTraining> training, const StepSettings& settings,
             Progress& progress);

  std::optional<StepReport> step(Loader& loader, const StepRequest& request) override;
  std::optional<StepReport> finish_step() override { return take(0); }

 private:
  static constexpr int ahead = 2;  // steps that the host may be in front of the GPU

  struct UnderWay {
    Position position;
    double learning_rate, data_wait_s, copy_s;
  };
  std::optional<StepReport> take(int still_under_way);
  void record(const GpuOutcome& outcome, std::uint64_t step);

  const std::unique_ptr<GpuTraining> own_;
  GpuTraining& training_;
  const double first_lead_ = 0;
  Progress& progress_;
  std::deque<UnderWay> under_way_;
  Timeline::Clock::time_point recorded_{};  // the end of the step of the GPU recorded last
};

}  // namespace ringtrain
