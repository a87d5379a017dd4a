#pragma once
#include "train/checkpoint/checkpoint_manager.hpp"
#include "train/loop/hook.hpp"
#include "train/loop/trainer.hpp"
#include "train/state/replica_check.hpp"

namespace ringtrain::train {

/// Compares the ranks' training states when that is due (--check-every), before a step is saved.
class ReplicaCheckHook final : public Hook {
 public:
  /// What is passed outlives it.
  ReplicaCheckHook(ReplicaCheck& check, CheckpointManager& checkpoints)
      : check_(check), checkpoints_(checkpoints) {}

  void between_steps(Trainer& trainer) override {
    const bool last = trainer.is_last();
    if (!check_.due(trainer.position().step, last)) return;
    trainer.drain();  // a GPU's steps are waited for with a limit, its state is not
    compare(trainer.position(), last);
  }
  /// A check where one is due at `position`. Collective.
  void compare(const Position& position, bool last) {
    check_.offer(position.step, last, [&] { checkpoints_.keep_nothing(); });
  }

 private:
  ReplicaCheck& check_;
  CheckpointManager& checkpoints_;
};

}  // namespace ringtrain::train
