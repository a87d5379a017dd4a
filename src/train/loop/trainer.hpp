#pragma once
// Room `train/loop`: the training loop, evaluation, and what the ranks agree on between steps. It
// knows no device and no file: steppers, hooks and functions are passed to it.
//
// Thread: main. Collective.
//
// Nothing here depends on the rank, so that all ranks come to each collective in one order.
#include <functional>
#include <optional>
#include <vector>

#include "ringtrain/allreduce/communicator/communicator.hpp"
#include "ringtrain/base/clock.hpp"
#include "ringtrain/io/loader/loader.hpp"
#include "ringtrain/monitor/progress.hpp"
#include "train/engine/stepper.hpp"
#include "train/loop/hook.hpp"

namespace ringtrain::train {

/// The training loop: makes steps until training is done or all ranks stop, evaluates in between,
/// and calls hooks around both. Collective, on the main thread.
class Trainer {
 public:
  /// All of it outlives the trainer. The functions answer the same on all ranks.
  struct Parts {
    Stepper& stepper;
    io::Loader& loader;
    allreduce::Communicator& communicator;  ///< of the stepper's sums
    monitor::Progress& progress;
    std::vector<Hook*> hooks;
    std::function<bool(const Position&)> done;  ///< whether training ends there
    std::function<bool()> stopping;             ///< whether the ranks have agreed to stop
    std::function<bool(const Position&)> evaluation_due;
    std::function<void(const Position&)> evaluate;
  };

  explicit Trainer(Parts parts) : parts_(std::move(parts)) {}

  void train();
  /// Waits for the steps that are under way, and reports them to the hooks.
  void drain();
  /// Does what is no part of a step, behind all that are under way. For Hook::between_steps().
  void do_untimed(const std::function<void()>& work);
  /// Behind all steps, also those under way.
  const Position& position() const { return parts_.stepper.position(); }
  /// Whether no step follows.
  bool is_last() const { return parts_.stopping() || parts_.done(position()); }

 private:
  void step();
  void evaluate();
  void report(const std::optional<StepReport>& done);
  void time_step();

  const Parts parts_;
  Stopwatch step_watch_;
  std::optional<StepReport> untimed_;  // reported last, while its wall time runs
};

}  // namespace ringtrain::train
