#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "ringtrain/model/graph.hpp"
#include "train/checkpoint/resume.hpp"

namespace ringtrain::train {

/// Whether the layers that give the logits may be missing from a file, or be for other classes:
/// then they stay as they were drawn.
enum class Heads { must_fit, may_differ };

/// Gives the state, which is that of `graph`, the weights and running statistics of `file`: a
/// checkpoint, safetensors or torch's. `weights`: which of a checkpoint's. The moving averages of
/// the state start from them; all else stays as it is. Rank 0 reads, the others receive. Returns
/// what became of it, in lines for the user, on rank 0. Throws Error(Exit::incompatible_checkpoint)
/// with the first tensors that do not fit, and as CheckpointFile and WeightsFile do: the job must
/// end. Collective.
std::vector<std::string> init_from(const std::filesystem::path& file, config::Weights weights,
                                   Heads heads, const model::Graph& graph, const StateToLoad& to);

/// The same in this process alone, for no other rank. `progress` hears which file is read, and may
/// be null.
std::vector<std::string> load_weights(const std::filesystem::path& file, config::Weights weights,
                                      Heads heads, const model::Graph& graph,
                                      const TrainingState& state, WorkProgress* progress = nullptr);

}  // namespace ringtrain::train
