#pragma once
#include <cstdint>
#include <memory>

#include "ringtrain/io/dataset.hpp"
#include "ringtrain/io/loader.hpp"
#include "ringtrain/model/zoo.hpp"
#include "ringtrain/train/options.hpp"
#include "train/trainer.hpp"

namespace ringtrain {

/// What a run will do: the user's options completed by the model's recipe, the data set and the
/// number of ranks. The same on every rank but for `share`.
struct Plan {
  Options options;  ///< with every recipe default filled in
  Model model;
  std::unique_ptr<Dataset> training, evaluation;
  int ranks = 1;
  int global_batch = 0;  ///< samples of all ranks and micro-steps in one step
  int micro_batch = 0;   ///< of all ranks in one micro-step
  Share share;           ///< this rank's of a micro-step
  double epochs = 0;
  std::uint64_t steps = 0;  ///< where training ends, counted from its start
  OptimizerSettings optimizer;
  LearningRate learning_rate;
  InputRecipe input;

  TrainerSettings trainer() const;
  LoaderOptions loader(Split split) const;
  /// The step at which epoch `epoch` is complete.
  std::uint64_t step_of_epoch(double epoch) const;
};

/// Throws Error with a code the user can act on when options, model, data and ranks do not fit.
Plan make_plan(const Options& options, int rank, int ranks);

}  // namespace ringtrain
