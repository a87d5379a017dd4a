#pragma once
// Room `optim`: optimizers and learning-rate schedules, on flat views of parameters and gradients
// in host memory. GPUs update in `compute/cuda` by the same rules, which tests hold to these.
//
// Threads: the caller's, with OpenMP inside; results do not depend on their number.
//
// Collective: nothing. With a sharded optimizer each rank updates its own range.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ringtrain/base/memory/memory.hpp"
#include "ringtrain/base/memory/view.hpp"
#include "ringtrain/compute/update.hpp"

namespace ringtrain::optim {
namespace kernels {
struct Factors;
}

using compute::OptimizerKind;

/// Parameters that decay: their factor multiplies the weight decay. What no range covers (by
/// recipe: biases, BatchNorm) does not decay. For lars each is one tensor with a trust ratio: a
/// weight, with the factor 0 where it does not decay.
struct WeightDecay {
  Range range;
  double factor = 1;
};

/// Parameters whose learning rate is multiplied by `factor`. What no range covers has the rate of
/// the step. Where a tensor has a trust ratio, all of it has one factor.
struct RateFactor {
  Range range;
  double factor = 1;
};

struct OptimizerSettings {
  OptimizerKind kind = OptimizerKind::momentum;
  double momentum = 0.9;           ///< momentum, nesterov, rmsprop, lars
  double mean_square_decay = 0.9;  ///< rmsprop
  double beta1 = 0.9, beta2 = 0.999;
  double epsilon = 1e-8;    ///< added inside the root by rmsprop, outside by adam and adamw
  double weight_decay = 0;  ///< L2, added to the gradient; adamw and lion decay the weights
  std::vector<WeightDecay> decays = {};  ///< ascending, disjoint
  std::vector<RateFactor> rates = {};    ///< likewise
  double ema = 0;  ///< the moving average's decay in the end; 0: there is none
  compute::AverageTiming average = {};
  double trust_coefficient = 0.001;  ///< lars
  double clip_norm = 0;              ///< most that the norm of all gradients may be; 0: any
};

/// What one update depends on besides the buffers.
struct UpdateScalars {
  std::int64_t step = 0;  ///< steps before this one, with those that were left out
  double learning_rate = 0;
  double gradient_scale = 1;
};

/// Turns summed gradients into parameters, on the host: weight decay, the rule, the moving average,
/// in one pass over memory by all OpenMP threads. Each element's arithmetic is the same whatever
/// the threads, the ranges and the CPU, so replicas stay equal to the bit. State lies in flat
/// buffers with the layout of the parameters.
///
/// Where the ranks share the work, each has a part of the parameters, and of the slots that part
/// alone, but for the moving average. Its updates are replace()d gradients; adopt() follows, once
/// those of all ranks are there.
class Optimizer {
 public:
  struct Slot {
    std::string name;  ///< as in checkpoints: "momentum", "mean_square", "adam_m", "adam_v", "ema"
    View values;
  };
  /// A part of the parameters.
  struct Part {
    std::vector<Range> ranges = {};  ///< ascending, disjoint; slots hold them one behind the other
    bool revertible = false;         ///< so that steps can be left out; doubles its slots
  };

  /// The views outlive the optimizer. Slots come from `memory` and are as after reset().
  /// Without a part it is of all parameters. lars has none, as its rates need whole tensors. The
  /// moving average lies at the front of `average`; without, in `memory`.
  Optimizer(const OptimizerSettings& settings, View parameters, View gradients, Memory& memory,
            std::optional<Part> part = std::nullopt, View average = {});

  /// Slots at their starting values, no step left out; the moving average starts as the parameters
  /// are now.
  void reset();
  /// Starts a step: update() covers each parameter once before the next begin().
  void begin(const UpdateScalars& scalars);
  /// Once all gradients are summed, before update(): scales them so that the norm of all together
  /// is at most the settings' clip_norm, as torch.nn.utils.clip_grad_norm_ does. Those whose rate
  /// is 0 do not count. Not with a part.
  void clip();
  /// Updates the parameters of `summed` from their gradients, which it leaves as they are. lars
  /// waits with a tensor until all of it is summed: its gradients stay as they are until then.
  void update(Range summed);
  /// Whether update() of all parameters would leave them and the slots finite. Changes neither.
  bool stays_finite();
  /// Does what update() does, but writes the new values over the gradients: parameters stay as
  /// they are. Gradients that are not finite stay, too, with those near them. Where slots become
  /// so, a NaN takes the place of one. `summed` lies in a range of the part.
  void replace(Range summed);
  /// After replace() of every range on its rank: takes the parameters over from where the
  /// gradients were. The moving average follows.
  void adopt();
  /// Instead, where it is revertible(): the slots are what they were before this step.
  void revert();
  /// The step that begin() started was left out: adam's bias corrections and the moving average's
  /// warm-up do not count it. So they count the steps that were updates, as PyTorch does where a
  /// GradScaler skips step().
  void skip() { *skipped_.view().data() += 1; }
  /// How many steps were left out: one number, part of what a checkpoint keeps.
  View skipped() const { return skipped_; }
  bool has_part() const { return part_.has_value(); }
  bool revertible() const { return part_ && part_->revertible; }
  /// weight_decay / 2 * sum of factor * w^2 over what update() or adopt() covered in this step, as
  /// it was before; to be added to the mean cross-entropy. Zero for adamw and lion, whose decay is
  /// no loss. The same bits for any number of threads.
  double l2_loss() const;

  const std::vector<Slot>& slots() const { return slots_; }
  /// The moving average of the parameters, if there is one.
  std::optional<View> average() const;
  /// What the average keeps of itself in the step that begin() started.
  double average_decay() const { return average_decay_; }
  /// Whether what is averaged becomes its average in this step.
  bool looks_ahead() const { return settings_.average.lookahead && average_decay_ != 1; }

 private:
  std::size_t place_part();
  void add_rule_slots(Memory& memory);
  void update_tensors(Range summed);
  void update_now(Range range);
  double update_chunk(Range chunk) const;
  bool chunk_stays_finite(Range chunk) const;
  void replace_chunk(Range chunk) const;
  double adopt_chunk(Range chunk) const;
  template <class Work>
  void for_segments(Range range, const Work& work) const;
  double decayed_squares(Range range, std::size_t segment) const;
  void apply_rule(Range range, std::size_t segment, float* w) const;
  void move_average(Range range) const;
  double trust_ratio(Range tensor, double decay);
  std::size_t rule_slots() const { return rule_slots_.size(); }
  std::size_t slot_place(Range range) const;
  float* slot_values(std::size_t slot, std::size_t place) const;
  kernels::Factors factors(std::size_t segment) const;

  OptimizerSettings settings_;
  View parameters_, gradients_;
  std::optional<Part> part_;
  std::vector<compute::OptimizerSlot> rule_slots_;
  std::vector<std::size_t> part_places_;  // of each range in the rule's slots
  std::size_t slot_size_;
  std::vector<Buffer> buffers_, before_;  // before_: the rule's slots before this step
  std::vector<Slot> slots_;
  std::vector<compute::DecaySegment> segments_;
  std::vector<std::size_t> covered_;   // parameters of each segment, in this step; lars
  std::vector<double> ratios_;         // of each segment, in this step: 1 but for lars
  std::vector<double> squares_;        // factor * w^2 of each chunk, in this step
  std::vector<double> chunk_squares_;  // sums of squares of which a norm is made
  Buffer skipped_;
  UpdateScalars now_;
  std::int64_t updates_ = 0;      // before this step
  double average_decay_ = 1;      // in this step
  double bias1_ = 1, bias2_ = 1;  // adam's corrections for moments that start at zero
};

/// How each of `parameters` decays and how fast it learns: ascending, covering all.
std::vector<compute::DecaySegment> decay_segments(const OptimizerSettings& settings,
                                                  std::size_t parameters);

/// average += (1 - decay) * (values - average); for what is averaged but not optimized, such as
/// BatchNorm's statistics.
void move_average(View average, View values, double decay);

/// The first element that is infinite or no number.
std::optional<std::size_t> first_non_finite(View values);

}  // namespace ringtrain::optim
