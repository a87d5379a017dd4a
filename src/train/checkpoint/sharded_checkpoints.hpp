#pragma once
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "train/checkpoint/checkpoint_manager.hpp"

namespace ringtrain::train {

/// Saves a training state of which each rank has a shard (Snapshotter::together). Rank 0 wants() a
/// save of the state behind a later step, all ranks hear of it with the sums of the next one, and
/// then they save_together(). save() and finish() are collective.
class ShardedCheckpointManager final : public CheckpointManager {
 public:
  /// What rank 0 says of its next save, on all ranks. Collective.
  using Rank0Says = std::function<bool(bool mine)>;

  /// Gives up a save whose shards have not come after `patience_s`. All else is
  /// CheckpointManager's.
  ShardedCheckpointManager(io::CheckpointWriter writer, Snapshotter& state,
                           io::CheckpointMetadata constant, config::CheckpointEvery every,
                           std::uint64_t epoch_samples, Report report, Rank0Says rank_0_says,
                           double patience_s)
      : CheckpointManager(std::move(writer), state, std::move(constant), every, epoch_samples,
                          std::move(report)),
        rank_0_says_(std::move(rank_0_says)),
        patience_s_(patience_s) {}

  void save(const Position& position) override;
  bool save_best(const Position& position, const std::string& best,
                 const Deadline& deadline) override;
  bool wants(const Position& next) override;
  void save_together(const Position& position) override;
  std::optional<Error> finish(const Position& position, const Deadline& deadline,
                              bool hurry = false) override;

 private:
  void save_if_due(const Position& position) override;
  std::string start_request(const Position& position) override;
  void before_last_copy() override { rank_0_says(true); }
  std::string give_up_copy() override;
  bool rank_0_says(bool mine) {
    said_ = true;
    return rank_0_says_(mine);
  }

  const Rank0Says rank_0_says_;
  const double patience_s_;
  bool said_ = false;         // rank_0_says(), since finish() began
  std::uint64_t wanted_ = 0;  // the step that wants() said yes for last
};

}  // namespace ringtrain::train
