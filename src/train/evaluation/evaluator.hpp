#pragma once
// Room `train/evaluation`: what is done with weights but train them. The Evaluator judges them over
// a data set, a ClassAccount class by class; predict() tells the classes of images.
//
// Thread: main. Collective: ranks divide the images, and rank 0 speaks.
//
// An image that cannot be read counts for nothing.
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "train/engine/engine.hpp"
#include "train/evaluation/class_account.hpp"
#include "train/loop/hook.hpp"
#include "train/loop/stop_control.hpp"
#include "train/plan/run_context.hpp"

namespace ringtrain::train {

/// Evaluates the weights over the evaluation set, with hooks between its batches and behind it.
class Evaluator {
 public:
  struct Parts {
    RunContext run;
    TrainingEngine& engine;
    StopControl& control;
    /// Called before this rank ends the job with what it alone has met. Empty: nothing to do.
    std::function<void()> before_abort = {};
    ClassAccount* classes = nullptr;  ///< counts them; null: nobody does
  };
  /// All of it outlives the evaluator.
  Evaluator(const Parts& parts, std::vector<Hook*> hooks)
      : parts_(parts), hooks_(std::move(hooks)) {}

  /// Evaluates the weights of `position`, until it is over or the ranks stop. Where too much is
  /// unreadable for its figures to say anything, StopControl::fail() hears of it. Collective.
  void evaluate_at(const Position& position);
  /// The step evaluated last as a whole.
  std::optional<std::uint64_t> evaluated_step() const { return evaluated_step_; }

 private:
  const Parts parts_;
  const std::vector<Hook*> hooks_;
  std::optional<std::uint64_t> evaluated_step_;
};

}  // namespace ringtrain::train
