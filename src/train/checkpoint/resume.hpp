#pragma once
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "ringtrain/allreduce/communicator/communicator.hpp"
#include "ringtrain/allreduce/mpi/session.hpp"
#include "ringtrain/base/work_progress.hpp"
#include "ringtrain/config/options.hpp"
#include "ringtrain/io/checkpoint/checkpoint.hpp"
#include "ringtrain/io/checkpoint/checkpoint_reader.hpp"
#include "train/plan/model_source.hpp"
#include "train/state/training_state.hpp"

namespace ringtrain::train {

/// What a resumed run goes on from.
struct Resumed {
  io::CheckpointMetadata metadata;
  std::string file;          ///< its name, on rank 0 only
  std::string lineage = {};  ///< likewise: of the training that goes on
  /// Why what compression had kept is not gone on from; empty where it is, or there is none.
  std::string kept_dropped = {};
};

/// What is wanted of a checkpoint.
enum class Wanted {
  everything,  ///< to go on training: the tensors must be exactly the state's
  evaluated,   ///< the state's weights and statistics, their moving average where there is one
  average,     ///< the same, and there must be one
  raw,         ///< the same without averages
};

/// Throws Error(Exit::no_valid_checkpoint) where the file at `path`, which is not one of weights,
/// does not begin as a checkpoint: such as the page that a server sends instead of the file.
void expect_some_format(const std::filesystem::path& path);

/// Throws Error(Exit::usage) where the moving average is asked for that `file` does not have.
void expect_weights(config::Weights weights, const io::CheckpointFile& file);

/// What the checkpoint that resume() would take says of itself. Only its index is read: it may
/// prove damaged later.
/// `progress` hears which file is read, and may be null.
std::optional<io::CheckpointMetadata> saved_metadata(const config::Resume& how,
                                                     const std::filesystem::path& directory,
                                                     WorkProgress* progress = nullptr);

/// The network of the checkpoint that the options name, or find, to go on from or to start from.
/// Nothing where there is none, or where the options name a network that starts from a checkpoint
/// to train. Throws as CheckpointFile::open() does.
std::optional<SavedNetwork> saved_network(const config::Options& options,
                                          WorkProgress* progress = nullptr);

/// What rank 0 finds so, or its failure, on every rank. Collective.
std::optional<SavedNetwork> saved_network(const config::Options& options,
                                          const allreduce::MpiSession& session,
                                          WorkProgress* progress);

/// The network that a state is of.
struct NetworkToLoad {
  std::uint64_t hash = 0;
  std::string text{};  ///< for the user: "resnet20 for 10 classes"
};

/// A state to load, the same on all ranks. What it names outlives the call.
struct StateToLoad {
  const TrainingState& state;
  allreduce::Communicator& communicator;
  const allreduce::MpiSession& session;
  WorkProgress* progress = nullptr;  ///< hears which file is read
};

/// Rank 0 finds, verifies and reads the checkpoint that `resume` asks for, straight into
/// `to.state`, and the other ranks receive it. nullopt: training starts from scratch. Notes for the
/// user go to `say` on rank 0. Throws as CheckpointFile does: the job must end. Collective.
std::optional<Resumed> resume(const config::Resume& how, Wanted wanted,
                              const std::filesystem::path& directory, const NetworkToLoad& network,
                              const StateToLoad& to,
                              const std::function<void(const std::string&)>& say);

}  // namespace ringtrain::train
