#pragma once
#include <memory>
#include <string>

#include "ringtrain/metrics/trace/timeline.hpp"
#include "train/checkpoint/checkpoint_manager.hpp"
#include "train/load_state.hpp"

namespace ringtrain::train {

/// The checkpoints of one run: the one that it starts from, what all that it writes say, and which
/// one a restart would resume from. Thread: main.
class RunCheckpoints {
 public:
  /// What is passed outlives the object.
  RunCheckpoints(const RunContext& run, TrainingEngine& engine);

  /// Opens --checkpoint-dir, unless the run only evaluates: no other job writes to it from then on.
  /// Then load_state(). Collective.
  StartingState start(io::WriterProcess& writer);
  /// Takes over what start() opened. Each save is told to `report`, too. Outlived by this object.
  /// Once.
  std::unique_ptr<CheckpointManager> make_manager(CheckpointManager::Report report);

  /// The configuration as checkpoints have it.
  const std::string& config() const { return config_; }
  /// What a checkpoint at `position` says.
  io::CheckpointMetadata metadata(const Position& position) const;

 private:
  io::CheckpointMetadata constant() const;
  void open(io::WriterProcess& writer);
  void note_saved(const io::SaveEvent& event);
  void name_resume() const;

  const RunContext run_;
  TrainingEngine& engine_;
  const std::string config_, plans_;
  io::CheckpointWriter writer_;
  std::string folder_, newest_;  // --checkpoint-dir as it is now; its newest checkpoint's name
  metrics::Timeline::Clock::time_point heard_;  // of the last save
};

}  // namespace ringtrain::train
