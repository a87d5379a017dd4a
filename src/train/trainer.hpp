#pragma once
#include <functional>

#include "ringtrain/allreduce/gradient_reducer.hpp"
#include "ringtrain/compute/backend.hpp"
#include "ringtrain/io/loader.hpp"
#include "ringtrain/model/graph.hpp"
#include "ringtrain/train/learning_rate.hpp"
#include "ringtrain/train/optimizer.hpp"
#include "train/step_sums.hpp"

namespace ringtrain {

/// Where training is: what a checkpoint's numbers belong to.
struct Position {
  std::uint64_t step = 0;     ///< updates made
  std::uint64_t samples = 0;  ///< drawn by all ranks
};

/// Where the seconds of one step went on this rank.
struct StepSeconds {
  double data_wait = 0, forward = 0, backward = 0, exposed = 0, update = 0;
};

/// What is fixed for a whole run.
struct TrainerSettings {
  int accumulate = 1;               ///< micro-steps a step
  int micro_batch = 0;              ///< samples of all ranks in a micro-step
  int share = 0;                    ///< this rank's of them
  std::uint64_t epoch_samples = 1;  ///< of the data set
  LearningRate learning_rate;
};

/// The training step, the same on every rank. All that it uses outlives it.
class Trainer {
 public:
  struct Parts {
    Program& program;
    StepSums& sums;
    View batch_statistics;    ///< written by the program
    View running_statistics;  ///< updated here
    const std::vector<Statistic>& statistics;
    GradientReducer& reducer;
    Optimizer& optimizer;
  };
  Trainer(const Parts& parts, const TrainerSettings& settings, Position start);

  /// This rank's wish to end after a step.
  struct Stop {
    bool wanted = false;
    int signal = 0;  ///< that made it wish so
  };
  /// One step on the loader's next batches. Collective. The outcome tells all ranks of a wish to
  /// stop. The gradient of a step that is not finite updates nothing.
  StepOutcome step(Loader& loader, Stop stop);

  const Position& position() const { return position_; }
  double epoch() const { return double(position_.samples) / double(settings_.epoch_samples); }
  /// Of the last step.
  double last_learning_rate() const { return last_learning_rate_; }
  /// Of the last step.
  const StepSeconds& seconds() const { return seconds_; }

 private:
  void run_micro_step(const Batch& batch, bool last);
  void hand_over(std::size_t first);
  void update();

  Parts parts_;
  TrainerSettings settings_;
  Position position_;
  StepSeconds seconds_;
  double last_learning_rate_ = 0;
  std::vector<float> accumulated_;  // gradients of the micro-steps before the last
  std::size_t handed_over_ = 0;     // gradients [handed_over_, end) are with the reducer
};

}  // namespace ringtrain
