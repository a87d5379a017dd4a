#pragma once
#include <optional>

#include "ringtrain/io/loader/loader.hpp"
#include "ringtrain/metrics/scaling/step_phases.hpp"
#include "train/plan/step_settings.hpp"
#include "train/sums/reduction_buffer.hpp"

namespace ringtrain::train {

/// A step that is over.
struct StepReport {
  Position position;  ///< behind it
  double learning_rate = 0;
  metrics::PhaseSeconds seconds;  ///< on this rank
  double sums_s = 0;  ///< from the start of the first sum to the end of the last, in several phases
  StepOutcome outcome;
};

/// The training step, the same on every rank.
class Stepper {
 public:
  virtual ~Stepper() = default;

  /// One step on the loader's next batches. Collective. Returns the oldest step that is over and
  /// was not reported: on CPUs this one, on a GPU one that was queued a few steps before, or none
  /// yet. The outcome tells all ranks what any asks for. The gradient of a step that is not
  /// finite updates nothing.
  virtual std::optional<StepReport> step(io::Loader& loader, const host::StepRequest& request) = 0;
  /// Waits for the oldest step that was not reported; nullopt when all were.
  virtual std::optional<StepReport> finish_step() = 0;

  /// Behind all steps, also those under way.
  const Position& position() const { return position_; }

 protected:
  Stepper(const StepSettings& settings, Position start) : settings_(settings), position_(start) {}

  const StepSettings& settings() const { return settings_; }
  double learning_rate() const {
    return settings_.learning_rate.at(double(position_.samples) / double(settings_.epoch_samples));
  }
  void advance() {
    ++position_.step;
    position_.samples += std::uint64_t(settings_.accumulate) * settings_.micro_batch;
  }

 private:
  const StepSettings settings_;
  Position position_;
};

}  // namespace ringtrain::train
