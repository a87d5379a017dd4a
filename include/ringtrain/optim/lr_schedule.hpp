#pragma once
#include <string>
#include <string_view>

namespace ringtrain::optim {

/// How the learning rate falls over a run. Epochs are those of the global batch, so the same
/// schedule holds for any number of ranks.
struct Decay {
  enum class Kind { constant, step, exponential, cosine };

  Kind kind = Kind::constant;
  double epochs = 1;  ///< step and exponential: the rate is multiplied by `factor` once in so many
  double factor = 1;

  friend bool operator==(const Decay&, const Decay&) = default;
};

/// Reads `constant`, `step:EPOCHS:FACTOR` (a staircase), `exponential:EPOCHS:FACTOR` (the same
/// factor, spread evenly) or `cosine`. Throws std::invalid_argument that says what it must be.
Decay parse_decay(std::string_view text);
/// The text that parse_decay() reads back as `decay`.
std::string to_string(const Decay& decay);

/// A learning rate as a pure function of the position in training: it has no state to save.
struct LearningRate {
  double peak = 0.1;
  Decay decay = {};
  /// Linear from 1 % of the rate (a step at zero would be wasted) to all of it.
  double warmup_epochs = 0;
  double total_epochs = 1;  ///< where cosine reaches zero

  /// The rate of the step that begins `epoch` epochs (position / size) into training.
  double at(double epoch) const;
};

}  // namespace ringtrain::optim
