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

/// What a rank copies out of its GPU's memory for a save, in this order: rank 0 all buffers, those
/// of which it has a shard range by range; the others their shards. Without what add_kept() adds.
std::vector<View> copied_on_gpu(const TrainingState& state, int rank);

/// Where all but what TrainingState::is_kept() lies in a GPU's memory.
struct GpuCopy {
  Snapshotter* copy = nullptr;  ///< of copied_on_gpu(); it outlives its user. Null: all on hosts
  int steps_to_start = 0;
};

/// Copies a training state of which each rank has a shard: each copies its own at the same position
/// and goes on training, while the others' travel to rank 0, on TCP connections of their own.
class ShardedSnapshotter final : public Snapshotter {
 public:
  /// `state` and `last_step` outlive this object. Rank 0 takes slices where `saves`; `interface` as
  /// in Options. Collective.
  ShardedSnapshotter(const TrainingState& state, LastStep& last_step,
                     const allreduce::MpiSession& session, bool saves, const std::string& interface,
                     const GpuCopy& on_gpu = {});
  ~ShardedSnapshotter() override;

  void prepare(std::span<const std::span<float>> targets) override;
  void start(std::span<const std::span<float>> targets) override;
  bool done() override {
    return (!server_ || server_->complete()) && (on_gpu_.copy == nullptr || on_gpu_.copy->done());
  }
  void release() override;
  bool together() const override { return true; }
  int steps_to_start() const override { return on_gpu_.steps_to_start; }
  /// Without the other ranks: where training can go on without what they have, as without what
  /// compression keeps.
  std::optional<Position> copy_last(std::span<const std::span<float>> targets) override;
  std::string lateness() override;

 private:
  std::vector<std::span<float>> targets_on_gpu(std::span<const std::span<float>> targets) const;
  void copy_own(std::span<const std::span<float>> targets) const;
  std::vector<SlicePlaces> places(std::span<const std::span<float>> targets) const;
  void prepare_slice();
  void send_own();
  void send_own_from_gpu();

  const TrainingState& state_;
  LastStep& last_step_;
  const allreduce::MpiSession& session_;
  const GpuCopy on_gpu_;
  std::uint64_t save_ = 0;
  std::unique_ptr<ShardReceiver> server_;  // on rank 0
  std::vector<float> slice_;               // on the others, what is sent
  std::unique_ptr<ShardSender> sender_;    // on the others
};

}  // namespace ringtrain::train
