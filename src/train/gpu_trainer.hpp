#pragma once
#include <deque>

#include "ringtrain/compute/gpu.hpp"
#include "train/trainer.hpp"

namespace ringtrain {

/// Steps on a GPU: queued, and reported once the GPU is done with them, two steps later at most.
/// `training` outlives it.
class GpuTrainer final : public Trainer {
 public:
  GpuTrainer(GpuTraining& training, const TrainerSettings& settings, Position start);

  std::optional<StepReport> step(Loader& loader, Stop stop) override;
  std::optional<StepReport> finish_step() override { return take(0); }

 private:
  static constexpr int ahead = 2;  // steps that the host may be in front of the GPU

  struct UnderWay {
    Position position;
    double learning_rate, data_wait_s, copy_s;
  };
  std::optional<StepReport> take(int still_under_way);

  GpuTraining& training_;
  std::deque<UnderWay> under_way_;
};

}  // namespace ringtrain
