#pragma once
#include <optional>
#include <span>
#include <string>

#include "train/plan/step_settings.hpp"

namespace ringtrain::train {

/// Copies the training state for a checkpoint, at the position where training is when start() is
/// called.
class Snapshotter {
 public:
  virtual ~Snapshotter() = default;
  /// Before training: prepares `targets` that start() may be given, so that no step waits for it.
  virtual void prepare(std::span<const std::span<float>>) {}
  /// `targets`: one for each of TrainingState::buffers(); they stay until release().
  virtual void start(std::span<const std::span<float>> targets) = 0;
  /// Whether the copy is complete, or none was started. Never waits.
  virtual bool done() = 0;
  /// Waits for the copy under way; no target is used from here on.
  virtual void release() = 0;
  /// Whether the state is shared among the ranks: then all start a copy at the same positions, rank
  /// 0 with targets, the others, and rank 0 for a copy that it cannot take, with none. release()
  /// gives a copy up and does not wait.
  virtual bool together() const { return false; }
  /// Then: how many steps behind the one whose sums say so the ranks start it, as far as their
  /// hosts are in front of their GPUs.
  virtual int steps_to_start() const { return 0; }
  /// From any thread, while training goes on: copies the state behind the last finished step, and
  /// returns its position; nothing where the state cannot be read between two steps. An update
  /// waits for it.
  virtual std::optional<Position> copy_last(std::span<const std::span<float>>) {
    return std::nullopt;
  }
  /// What is told of a copy that is not done in time.
  virtual std::string lateness() { return "its copy out of the GPU did not end in time"; }
};

}  // namespace ringtrain::train
