#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "ringtrain/io/checkpoint_writer/checkpoint_writer.hpp"
#include "train/checkpoint/resume.hpp"
#include "train/engine/engine.hpp"
#include "train/plan/run_context.hpp"

namespace ringtrain::train {

/// Where a training begins.
struct StartingState {
  Position position;
  bool loaded = false;                      ///< from a checkpoint or another training's weights
  std::filesystem::path resumed_from{};     ///< on rank 0; empty: from scratch
  std::optional<std::string> lineage{};     ///< of what was resumed
  std::vector<std::uint64_t> unreadable{};  ///< as CheckpointMetadata has them
  std::string best{};                       ///< likewise
};

/// Loads what training goes on from: the checkpoint that --resume means, else the weights that
/// --init-from names; else nothing, and the state stays as it is. Tells the user, with what has
/// changed since that checkpoint. Ends the job where the checkpoint directory is another training's
/// (65), or another checkpoint has settled other shares meanwhile (73). Takes the lineage of what
/// was resumed for `writer`, or draws one. `config` and `plans`: as this run's checkpoints say
/// them. Collective.
StartingState load_state(const RunContext& run, TrainingEngine& engine,
                         io::CheckpointWriter& writer, const std::string& config,
                         const std::string& plans);

}  // namespace ringtrain::train
