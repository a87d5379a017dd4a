#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ringtrain/allreduce/mpi/session.hpp"
#include "train/state/shard_transfer.hpp"
#include "train/state/snapshot.hpp"
#include "train/state/training_state.hpp"

namespace ringtrain::train {

/// Copies a training state of which each rank has a shard: each copies its own at the same position
/// and goes on training, while the others' travel to rank 0, on TCP connections of their own.
class ShardedSnapshotter final : public Snapshotter {
 public:
  /// `state`, which has shards in the host's memory, and `last_step` outlive this object. Rank 0
  /// takes slices where `saves`; `interface` as in Options. `on_gpu` copies the buffers that
  /// TrainingState::is_kept() leaves; it outlives this object; null: those lie in the host's
  /// memory, too. Collective.
  ShardedSnapshotter(const TrainingState& state, LastStep& last_step,
                     const allreduce::MpiSession& session, bool saves, const std::string& interface,
                     Snapshotter* on_gpu = nullptr);

  void prepare(std::span<const std::span<float>> targets) override;
  void start(std::span<const std::span<float>> targets) override;
  bool done() override {
    return (!server_ || server_->complete()) && (on_gpu_ == nullptr || on_gpu_->done());
  }
  void release() override;
  bool together() const override { return true; }
  /// Without the other ranks: where training can go on without what they have, as without what
  /// compression keeps.
  std::optional<Position> copy_last(std::span<const std::span<float>> targets) override;
  std::string lateness() override;

 private:
  std::vector<std::span<float>> targets_on_gpu(std::span<const std::span<float>> targets) const;
  void copy_own(std::span<const std::span<float>> targets) const;
  std::vector<SlicePlaces> places(std::span<const std::span<float>> targets) const;
  void send_own();

  const TrainingState& state_;
  LastStep& last_step_;
  const allreduce::MpiSession& session_;
  Snapshotter* const on_gpu_;
  std::uint64_t save_ = 0;
  std::unique_ptr<ShardReceiver> server_;  // on rank 0
  std::vector<float> slice_;               // on the others, what is sent
  std::unique_ptr<ShardSender> sender_;    // on the others
};

}  // namespace ringtrain::train
