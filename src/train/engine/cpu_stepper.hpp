#pragma once
#include <vector>

#include "ringtrain/allreduce/communicator/gradient_reducer.hpp"
#include "ringtrain/compute/backend.hpp"
#include "ringtrain/model/graph.hpp"
#include "ringtrain/monitor/progress.hpp"
#include "ringtrain/optim/optimizer.hpp"
#include "train/engine/stepper.hpp"

namespace ringtrain::train {

/// Steps on CPUs, one after the other. All that it uses outlives it.
class CpuStepper : public Stepper {
 public:
  struct Parts {
    compute::Program& program;
    TrainingBuffers& buffers;
    std::vector<compute::StatisticsMomentum> momenta;
    allreduce::GradientReducer& reducer;
    optim::Optimizer& optimizer;
    monitor::Progress& progress;
    LastStep& last_step;
    /// Compute threads never sleep while they wait for each other: then the time in which the main
    /// thread had no CPU is what others took.
    bool never_sleeps = true;
    compute::Program::SumOverRanks sum_over_ranks =
        {};  ///< of BatchNorm's statistics; empty: this rank's
  };
  CpuStepper(const Parts& parts, const StepSettings& settings, Position start);

  std::optional<StepReport> step(io::Loader& loader, const host::StepRequest& request) override;
  std::optional<StepReport> finish_step() override { return std::nullopt; }

 private:
  void run_micro_step(const Batch& batch, int micro);
  void take(std::size_t first, int micro);
  bool stays_finite();
  void update();

  Parts parts_;
  metrics::PhaseSeconds seconds_;
  std::vector<float> accumulated_;  // gradients of the micro-steps before the last
  std::size_t taken_ = 0;  // of a micro-step, gradients [taken_, end) are added up or being summed
};

}  // namespace ringtrain::train
