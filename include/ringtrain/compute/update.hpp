#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ringtrain::compute {

/// How a gradient becomes a change of its parameter; TensorFlow's rmsprop; lars of You, Gitman and
/// Ginsburg (2017), algorithm 1: momentum that holds the rate, and a rate for each tensor.
enum class OptimizerKind { sgd, momentum, nesterov, rmsprop, adam, adamw, lars, lion };

/// Whether weight decay makes weights smaller by a factor, and is no part of gradient and loss.
constexpr bool decouples_decay(OptimizerKind kind) {
  return kind == OptimizerKind::adamw || kind == OptimizerKind::lion;
}

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
    case OptimizerKind::lion:
      return {{"lion_m"}};
  }
  return {};
}

/// When a moving average follows what it averages, and how fast at first.
struct AverageTiming {
  enum class Warmup : std::int32_t {
    tensorflow,  ///< at most (1 + t) / (10 + t), t updates before this one
    timm,        ///< at most 1 - (1 + t)^(-2/3)
    none,
    power,  ///< times ((t + 1) / length)^power, until t is `length`
    copies  ///< 0 in the first `length` updates
  };
  Warmup warmup = Warmup::tensorflow;
  std::int32_t every = 1;  ///< so many updates
  double length = 1, power = 1;
  /// What is averaged becomes its average then: lookahead (Zhang et al. 2019, arXiv:1907.08610).
  bool lookahead = false;

  /// What the average keeps of itself behind an update with `before` others before it; 1: all.
  template <class Number>
  constexpr Number decay(Number limit, Number before) const {
    const Number now = before + 1;
    if (now - every * std::floor(now / every) != 0) return 1;
    Number young = 1;
    if (warmup == Warmup::tensorflow) young = now / (10 + before);
    if (warmup == Warmup::timm) young = 1 - std::pow(now, Number(-2) / 3);
    if (warmup == Warmup::copies && now <= length) young = 0;
    if (warmup == Warmup::power && now < length) return limit * std::pow(now / length, power);
    return limit < young ? limit : young;
  }
};

struct RuleSettings {
  OptimizerKind kind;
  double momentum, mean_square_decay, beta1, beta2;
  double epsilon;                    ///< inside the root for rmsprop, outside for adam and adamw
  double ema;                        ///< the moving average's decay in the end; 0: there is none
  double trust_coefficient = 0.001;  ///< lars
  double clip_norm = 0;              ///< most that the norm of all gradients may be; 0: any
  AverageTiming average = {};
};

/// What torch.nn.utils.clip_grad_norm_ adds to a norm.
inline constexpr double clip_epsilon = 1e-6;

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
