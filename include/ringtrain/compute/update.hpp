#pragma once
#include <cstdint>

namespace ringtrain {

/// How a gradient becomes a change of its parameter; TensorFlow's rmsprop.
enum class Rule { sgd, momentum, nesterov, rmsprop, adam, adamw };

struct RuleSettings {
  Rule rule;
  double momentum, mean_square_decay, beta1, beta2;
  double epsilon;  ///< inside the root for rmsprop, outside for adam and adamw
  double ema;      ///< limit of the moving average's decay; 0: there is none
};

/// Parameters up to `end`, from where the segment before ended, decay by `decay`.
struct DecaySegment {
  std::uint64_t end;
  double decay;
};

/// How the loss scale follows the gradients: times `backoff` after a step that was skipped, times
/// `growth` after `interval` steps that were not. An interval of 0 keeps it as it is.
struct LossScaleSettings {
  float growth = 2, backoff = 0.5f, least = 1, most = 16777216;
  std::int32_t interval = 2000;
};

}  // namespace ringtrain
