#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ringtrain::compute {

/// How a gradient becomes a change of its parameter; TensorFlow's rmsprop; lars of You, Gitman and
/// Ginsburg (2017), algorithm 1: momentum that holds the rate, and a rate for each tensor.
enum class OptimizerKind { sgd, momentum, nesterov, rmsprop, adam, adamw, lars };

/// A number that an optimizer keeps for each parameter: its name in checkpoints, and its first
/// value.
struct OptimizerSlot {
  const char* name;
  float start = 0;
};
/// The slots of each kind of optimizer, without the moving average of the parameters.
inline std::vector<OptimizerSlot> slots_of(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::sgd:
      break;
    case OptimizerKind::momentum:
    case OptimizerKind::nesterov:
    case OptimizerKind::lars:
      return {{"momentum"}};
    case OptimizerKind::rmsprop:
      return {{"mean_square", 1}, {"momentum"}};  // TensorFlow starts at one
    case OptimizerKind::adam:
    case OptimizerKind::adamw:
      return {{"adam_m"}, {"adam_v"}};
  }
  return {};
}

struct RuleSettings {
  OptimizerKind kind;
  double momentum, mean_square_decay, beta1, beta2;
  double epsilon;                    ///< inside the root for rmsprop, outside for adam and adamw
  double ema;                        ///< limit of the moving average's decay; 0: there is none
  double trust_coefficient = 0.001;  ///< lars
};

/// Parameters up to `end`, from where the segment before ended, decay by `decay`, and their
/// learning rate is multiplied by `rate`. For lars, those that are `scaled` are one tensor w with
/// gradient g, whose rate is also multiplied by its trust ratio: trust coefficient * |w| / (|g| +
/// decay * |w|), or 1 where |w| or |g| is 0.
struct DecaySegment {
  std::uint64_t end;
  double decay;
  bool scaled = false;
  double rate = 1;
};

/// BatchNorm statistics up to `end`, from where those before ended: running += momentum * (batch -
/// running).
struct StatisticsMomentum {
  std::size_t end = 0;
  float momentum = 0;
};

/// How the loss scale follows the gradients: times `backoff` after a step that was skipped, times
/// `growth` after `interval` steps that were not. An interval of 0 keeps it as it is.
struct LossScaleSettings {
  float growth = 2, backoff = 0.5f, least = 1, most = 16777216;
  std::int32_t interval = 2000;
};

}  // namespace ringtrain::compute
