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
  /// `state`, which has shards, in the host's memory, and `last_step` outlive this object. Rank 0
  /// takes slices where `saves`; `interface` as in Options. Collective.
  ShardedSnapshotter(const TrainingState& state, LastStep& last_step,
                     const allreduce::MpiSession& session, bool saves,
                     const std::string& interface);

  void start(std::span<const std::span<float>> targets) override;
  bool done() override { return !server_ || server_->complete(); }
  void release() override;
  bool together() const override { return true; }
  /// Without the other ranks: where training can go on without what they have, as without what
  /// compression keeps.
  std::optional<Position> copy_last(std::span<const std::span<float>> targets) override;
  std::string lateness() override;

 private:
  void copy_own(std::span<const std::span<float>> targets) const;
  std::vector<SlicePlaces> places(std::span<const std::span<float>> targets) const;
  void send_own();

  const TrainingState& state_;
  LastStep& last_step_;
  const allreduce::MpiSession& session_;
  std::uint64_t save_ = 0;
  std::unique_ptr<ShardReceiver> server_;  // on rank 0
  std::vector<float> slice_;               // on the others, what is sent
  std::unique_ptr<ShardSender> sender_;    // on the others
};

}  // namespace ringtrain::train
