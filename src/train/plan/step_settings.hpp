#pragma once
#include <cstdint>
#include <mutex>

#include "ringtrain/optim/lr_schedule.hpp"

namespace ringtrain::train {

/// Where training is: what a checkpoint's numbers belong to.
struct Position {
  std::uint64_t step = 0;     ///< updates made
  std::uint64_t samples = 0;  ///< drawn by all ranks
};

/// Lets other threads read the training state: it changes only while the mutex is held.
struct LastStep {
  std::mutex mutex;
  Position position;  ///< that the state belongs to: behind the last step that changed it
};

/// What is fixed for a whole run.
struct StepSettings {
  int accumulate = 1;               ///< micro-steps a step
  int micro_batch = 0;              ///< samples of all ranks in a micro-step
  int share = 0;                    ///< this rank's of them
  std::uint64_t epoch_samples = 1;  ///< of the data set
  optim::LearningRate learning_rate;
  bool leaves_out = false;  ///< steps that are not finite, and goes on behind them

  /// What one sample's gradient weighs in the step's mean.
  double sample_weight() const { return 1.0 / (double(accumulate) * micro_batch); }
};

}  // namespace ringtrain::train
