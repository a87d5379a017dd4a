#pragma once
// Room `train/sums`: what the ranks sum in a step, in which buffer, and over which communicators.
// Engines compose these for CPUs, GPUs, compression and shards.
//
// Thread: main. Collective where a communicator is made or used.
//
// The order in which terms are added is fixed: the same ranks and hosts give the same bits.
#include <span>
#include <vector>

#include "ringtrain/base/memory/memory.hpp"
#include "ringtrain/compute/backend.hpp"
#include "ringtrain/compute/update.hpp"
#include "ringtrain/host/signals.hpp"
#include "ringtrain/model/graph.hpp"

namespace ringtrain::train {

/// What one step came to, over all ranks.
struct StepOutcome {
  double loss = 0;             ///< mean cross-entropy of the samples, and `l2`
  double l2 = 0;               ///< of the weights that decay; the stepper adds it
  double top1 = 0;             ///< fraction of the samples
  bool stop = false;           ///< some rank asks to stop after this step
  int signal = 0;              ///< that made it ask, if one did; SIGUSR1 without `stop`: save
  bool save = false;           ///< as in StepRequest
  bool measure_links = false;  ///< as in StepRequest
  bool unreadable = false;     ///< as in StepRequest
  /// The loss, a gradient, a statistic or, where steps are left out, an update is NaN or infinite.
  /// Nothing was updated.
  bool not_finite = false;
  /// On a GPU in fp16: a gradient overflowed. Nothing was updated; the loss scale is lower now.
  bool skipped = false;
  double loss_scale = 1;
};

/// The statistics that training moves, one behind the other as in the flat buffer; neighbours that
/// move alike together.
std::vector<compute::StatisticsMomentum> momenta_of(const model::Graph& graph);

/// The one buffer that the ranks sum in a step: a head of step results and BatchNorm statistics,
/// then the gradients. The head lies in front because backward makes the tail final first, so it
/// rides in the last bucket.
class ReductionBuffer {
 public:
  /// `padding`: zeros behind the gradients, which are summed with them. Collective where `memory`
  /// is.
  ReductionBuffer(Memory& memory, std::size_t parameters, std::size_t statistics,
                  std::size_t padding = 0);

  View all() const { return buffer_; }
  View gradients() const { return buffer_.view().slice(head_, parameters_); }
  /// BatchNorm statistics, averaged over the ranks once summed.
  View statistics() const { return buffer_.view().slice(results, statistics_); }
  /// The gradients that `part` of all() holds; none of a part of the head.
  Range gradients_in(View part) const;
  /// Where gradient `first` lies in all().
  std::size_t place_of(std::size_t first) const { return head_ + first; }

  void clear_head();
  /// Adds this rank's micro-step: its sums times `sample_weight` (1 / samples of all ranks and
  /// micro-steps), and its statistics times its share of the samples.
  void add(const compute::StepResult& result, View statistics, double sample_weight, double share);
  void ask(const host::StepRequest& request);
  /// After the sum: what all ranks' steps came to.
  StepOutcome outcome() const;

 private:
  static constexpr std::size_t results = 16;  // one cache line of results and requests

  std::size_t parameters_, statistics_, head_;
  Buffer buffer_;
};

/// The flat buffers of a rank's training, without the optimizer's slots. Of what is frozen there
/// are neither gradients nor statistics of the batch.
struct TrainingBuffers {
  /// `averages`: the run has a moving average, so that there is one of running statistics, too.
  /// `summed` is the memory of the sums. `padding`: zeros behind parameters and gradients.
  /// Collective where a memory is.
  TrainingBuffers(const model::Graph& graph, bool averages, Memory& memory, Memory& summed,
                  std::size_t padding = 0);

  /// The values that training starts from; moving averages of statistics start from them.
  void set(std::span<const float> parameters, std::span<const float> statistics,
           const Memory& memory);
  /// The running statistics that an evaluation uses: their moving average where there is one.
  View evaluated_statistics() const {
    return averaged_statistics.view().size() > 0 ? averaged_statistics : statistics;
  }
  operator compute::Buffers() const {
    return {parameters, sums.gradients(), statistics, batch_statistics};
  }

  Buffer padded_parameters;
  View parameters;
  Buffer statistics, averaged_statistics, batch_statistics;
  ReductionBuffer sums;
};

}  // namespace ringtrain::train
