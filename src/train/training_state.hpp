#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ringtrain/compute/memory.hpp"
#include "ringtrain/io/checkpoint.hpp"
#include "ringtrain/model/graph.hpp"
#include "ringtrain/train/optimizer.hpp"
#include "train/shards.hpp"

namespace ringtrain {

/// Everything that training changes, named: the parameters, BatchNorm's running statistics and the
/// optimizer's slots (the moving average among them). What a checkpoint holds. Owns no memory.
///
/// Where the ranks share the optimizer's slots, layout() is of all of it, and this rank has a shard
/// of some buffers.
class TrainingState {
 public:
  /// `memory`: where all of it lies; outlives this object. `averaged_statistics` is empty where the
  /// run has no moving average. `shards`: of the slots but the moving average; outlives this
  /// object; null: they are whole.
  TrainingState(const Graph& graph, Memory& memory, View parameters, View statistics,
                const std::vector<Optimizer::Slot>& slots, View averaged_statistics = {},
                const Shards* shards = nullptr);

  /// One more tensor, of one extent, called `name` in checkpoints.
  void add(const std::string& name, View values);

  /// Names and places of all tensors, as a checkpoint stores them.
  const StateLayout& layout() const { return layout_; }
  const std::vector<View>& buffers() const { return buffers_; }
  const Shards* shards() const { return shards_; }
  /// Whether this rank has its shard of that buffer only.
  bool has_shard(std::size_t buffer) const { return shards_ != nullptr && sharded_[buffer]; }
  /// Takes over every buffer's values: as many sources, of the same sizes in the same order.
  void copy_from(std::span<const std::vector<float>> sources) const;
  /// The values of every buffer.
  std::vector<std::vector<float>> copy() const;
  /// Gives the values that rank 0 has of every buffer, whole, to all ranks. Collective.
  void share(std::vector<std::vector<float>> values, Communicator& communicator) const;
  /// XXH64 of each tensor's bytes, in the order of layout(): those that a checkpoint holds; 0 for
  /// those of which this rank has a shard. Waits for what computes them.
  std::vector<std::uint64_t> hashes() const;
  /// Of all tensors, also those that are shared. Collective.
  std::vector<std::uint64_t> hashes(Communicator& communicator) const;

 private:
  void place_parameters(const Graph& graph, const std::string& folder, View buffer,
                        bool sharded = false);
  void place_statistics(const Graph& graph, const std::string& folder, View buffer);
  void push_buffer(View buffer, std::size_t size, bool sharded = false);
  void share_shards(View own, std::span<const float> values, std::size_t size,
                    Communicator& communicator) const;
  std::vector<float> whole(std::size_t buffer, Communicator& communicator) const;
  std::uint64_t hash_of(View values, std::span<float> piece) const;

  Memory& memory_;
  const Shards* shards_;
  std::vector<View> buffers_;
  std::vector<bool> sharded_;  // by buffer
  StateLayout layout_;
};

}  // namespace ringtrain
