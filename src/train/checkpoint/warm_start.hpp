#pragma once
#include <filesystem>
#include <string>

#include "ringtrain/allreduce/communicator/communicator.hpp"
#include "ringtrain/allreduce/mpi/session.hpp"
#include "ringtrain/base/work_progress.hpp"
#include "ringtrain/model/graph.hpp"
#include "train/state/training_state.hpp"

namespace ringtrain::train {

/// Whether the layers that give the logits may be missing from a file, or be for other classes:
/// then they stay as they were drawn.
enum class Heads { must_fit, may_differ };

/// Gives `state`, which is that of `graph`, the weights and running statistics of the checkpoint
/// `file`: their moving averages where it has them, because those were evaluated. The moving
/// averages of `state` start from them; all else stays as it is. Rank 0 reads, the others
/// receive. Returns what became of it, for the user, on rank 0. Throws
/// Error(Exit::incompatible_checkpoint) with the first ten tensors that do not fit, and as
/// CheckpointFile does: the job must end. `progress` may be null. Collective.
std::string init_from(const std::filesystem::path& file, Heads heads, const model::Graph& graph,
                      const TrainingState& state, allreduce::Communicator& communicator,
                      const allreduce::MpiSession& session, WorkProgress* progress = nullptr);

}  // namespace ringtrain::train
