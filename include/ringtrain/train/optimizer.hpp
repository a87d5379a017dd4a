#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ringtrain/compute/memory.hpp"
#include "ringtrain/compute/update.hpp"
#include "ringtrain/compute/view.hpp"

namespace ringtrain {
namespace kernels {
struct Factors;
}

using OptimizerKind = Rule;

/// Parameters that decay: their factor multiplies the weight decay. What no range covers (by
/// recipe: biases, BatchNorm) does not decay. For lars each is one tensor with a trust ratio: a
/// weight, with the factor 0 where it does not decay.
struct WeightDecay {
  Range range;
  double factor = 1;
};

struct OptimizerSettings {
  OptimizerKind kind = OptimizerKind::momentum;
  double momentum = 0.9;           ///< momentum, nesterov, rmsprop, lars
  double mean_square_decay = 0.9;  ///< rmsprop
  double beta1 = 0.9, beta2 = 0.999;
  double epsilon = 1e-8;    ///< added inside the root by rmsprop, outside by adam and adamw
  double weight_decay = 0;  ///< L2, added to the gradient; adamw decays the weights instead
  std::vector<WeightDecay> decays = {};  ///< ascending, disjoint
  double ema = 0;  ///< limit of ema_decay(); 0: no moving average of the parameters
  double trust_coefficient = 0.001;  ///< lars
};

/// What one update depends on besides the buffers.
struct UpdateScalars {
  std::int64_t step = 0;  ///< updates made before this one
  double learning_rate = 0;
  double gradient_scale = 1;
};

/// Turns summed gradients into parameters, on the host: weight decay, the rule, the moving average,
/// in one pass over memory by all OpenMP threads. Each element's arithmetic is the same whatever
/// the threads, the ranges and the CPU, so replicas stay equal to the bit. State lies in flat
/// buffers with the layout of the parameters.
class Optimizer {
 public:
  struct Slot {
    std::string name;  ///< as in checkpoints: "momentum", "mean_square", "adam_m", "adam_v", "ema"
    View values;
  };

  /// The views outlive the optimizer. Slots come from `memory` and are as after reset().
  Optimizer(const OptimizerSettings& settings, View parameters, View gradients, Memory& memory);

  /// Slots at their starting values; the moving average starts as the parameters are now.
  void reset();
  /// Starts a step: update() covers each parameter once before the next begin().
  void begin(const UpdateScalars& scalars);
  /// Updates the parameters of `summed` from their gradients, which it leaves as they are. lars
  /// waits with a tensor until all of it is summed: its gradients stay as they are until then.
  void update(Range summed);
  /// weight_decay / 2 * sum of factor * w^2 over what update() covered in this step, as it was
  /// before; to be added to the mean cross-entropy. Zero for adamw, whose decay is no loss. The
  /// same bits for any number of threads.
  double l2_loss() const;

  const std::vector<Slot>& slots() const { return slots_; }
  /// The moving average of the parameters, if there is one.
  std::optional<View> average() const;
  /// What the average keeps of itself in the step that begin() started.
  double average_decay() const;

 private:
  void add_slot(const char* name, float start, Memory& memory);
  void add_rule_slots(Memory& memory);
  void update_tensors(Range summed);
  void update_now(Range range);
  double update_chunk(Range chunk) const;
  void update_segment(Range range, std::size_t segment) const;
  double trust_ratio(Range tensor, double decay);
  float* slot_values(std::size_t slot, std::size_t first) const;
  kernels::Factors factors(std::size_t segment) const;

  OptimizerSettings settings_;
  View parameters_, gradients_;
  std::vector<Buffer> buffers_;
  std::vector<Slot> slots_;
  std::vector<float> starts_;  // of the slots but "ema"
  std::vector<DecaySegment> segments_;
  std::vector<std::size_t> covered_;  // parameters of each segment, in this step; lars
  std::vector<double> ratios_;        // of each segment, in this step: 1 but for lars
  std::vector<double> squares_;       // factor * w^2 of each chunk, in this step
  std::vector<double> norms_;         // of each chunk, for one norm after the other
  UpdateScalars now_;
  double bias1_ = 1, bias2_ = 1;  // adam's corrections for moments that start at zero
};

/// How each of `parameters` decays: ascending, covering all.
std::vector<DecaySegment> decay_segments(const OptimizerSettings& settings, std::size_t parameters);

/// min(limit, (1 + step) / (10 + step)): a young average forgets its start.
double ema_decay(double limit, std::int64_t step);
/// average += (1 - decay) * (values - average); for what is averaged but not optimized, such as
/// BatchNorm's statistics.
void move_average(View average, View values, double decay);

/// The first element that is infinite or no number.
std::optional<std::size_t> first_non_finite(View values);

}  // namespace ringtrain
