#pragma once
#include <span>

namespace ringtrain {

/// Copies the training state for a checkpoint, at the position where training is when start() is
/// called.
class StateCopy {
 public:
  virtual ~StateCopy() = default;
  /// `targets`: one for each of TrainingState::buffers(); they stay until release().
  virtual void start(std::span<const std::span<float>> targets) = 0;
  /// Whether the copy is complete, or none was started. Never waits.
  virtual bool done() = 0;
  /// Waits for the copy under way; no target is used from here on.
  virtual void release() = 0;
};

}  // namespace ringtrain
