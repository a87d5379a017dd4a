#pragma once
#include <memory>

#include "ringtrain/allreduce/communicator/communicator.hpp"
#include "ringtrain/allreduce/mpi/session.hpp"
#include "ringtrain/base/memory/memory.hpp"
#include "train/plan/run_plan.hpp"
#include "train/state/training_state.hpp"

namespace ringtrain::train {

/// What compression keeps from step to step, as part of the training state: a mirror, in the host's
/// memory, of what the communicator has.
class KeptCompression {
 public:
  /// Null where no rank keeps any. `communicator` outlives it. Collective.
  static std::unique_ptr<KeptCompression> make(const RunPlan& plan,
                                               allreduce::Communicator& communicator,
                                               const allreduce::MpiSession& session);
  /// This object outlives `state`.
  void add_to(TrainingState& state);
  /// What the state now has is what the next sums depend on. Between steps.
  void restore();

 private:
  KeptCompression(allreduce::Communicator& communicator, Shards shards);
  void refresh();

  allreduce::Communicator& communicator_;
  const Shards by_ranks_;
  HostMemory memory_;
  const Buffer kept_, complete_;
};

}  // namespace ringtrain::train
