#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "ringtrain/host/signals.hpp"
#include "train/engine/stepper.hpp"

namespace ringtrain::train {

class Trainer;

/// Over all samples of the evaluation set and all ranks.
struct Evaluation {
  bool whole = true;              ///< else the ranks stopped amid it, and the figures are of a part
  host::StepRequest unsaid = {};  ///< of this rank, which the others have not heard of
  double loss = 0;                ///< mean cross-entropy
  double top1 = 0, top5 = 0;
  std::uint64_t examples = 0;
  double seconds = 0;
  std::uint64_t unreadable = 0;     ///< samples of the set
  std::vector<std::string> events;  ///< what this rank could not read
  bool valid = true;                ///< else too much is unreadable for the figures to say anything
};

/// What hangs on the training loop (trainer.hpp). A hook has one job. The trainer calls all hooks
/// at each point of a step, in the order of its list, on the main thread of every rank. The order
/// is part of the contract: what a hook relies on, one before it in the list has done. All ranks
/// have the same list and get the same calls, so a hook may make collective calls. What a hook
/// throws ends the job.
class Hook {
 public:
  virtual ~Hook() = default;
  /// A step begins behind `position`. `request`: what this rank asks of all ranks with the step's
  /// sums.
  virtual void before_step(const Position& /*position*/, host::StepRequest& /*request*/) {}
  /// A step is over on all ranks: on CPUs the one just made, on a GPU one of up to two steps
  /// before.
  virtual void step_done(const StepReport& /*report*/) {}
  /// Between two steps. May call trainer.drain().
  virtual void between_steps(Trainer& /*trainer*/) {}
  /// The step that step_done() reported took `wall_s` seconds, counted from the step timed before:
  /// to the end of between_steps(), or to when the next one is reported.
  virtual void step_timed(const StepReport& /*report*/, double /*wall_s*/) {}
  /// All else of a step is over.
  virtual void after_step(const Position& /*position*/) {}

  /// Between two steps, an evaluation of the weights of `position` is due. It may still be called
  /// off.
  virtual void before_evaluation(const Position& /*position*/) {}
  /// Before each batch of an evaluation. The Evaluator calls this and the next.
  virtual void between_batches(const Position& /*position*/) {}
  /// It is over, or was cut short (Evaluation::whole).
  virtual void evaluated(const Position& /*position*/, const Evaluation& /*result*/) {}
};

}  // namespace ringtrain::train
