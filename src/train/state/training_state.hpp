#pragma once
// Room `train/state`: everything that training changes, named as checkpoints name it, and how it is
// copied, compared and brought together where ranks have shards of it.
//
// Threads: the main one; shard_transfer.hpp has threads of its own, which touch only what is
// copied.
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ringtrain/allreduce/communicator/communicator.hpp"
#include "ringtrain/allreduce/mpi/session.hpp"
#include "ringtrain/base/memory/memory.hpp"
#include "ringtrain/io/checkpoint/checkpoint.hpp"
#include "ringtrain/model/graph.hpp"
#include "ringtrain/optim/optimizer.hpp"

namespace ringtrain::train {

/// Which parameters each rank updates, and keeps the optimizer's slots of, where the ranks share
/// that: all ranks' together are all parameters. A slot of a rank holds its ranges one behind the
/// other.
struct Shards {
  int rank = 0;                            ///< this one
  std::vector<std::vector<Range>> ranges;  ///< of each rank: ascending, disjoint

  const std::vector<Range>& own() const { return ranges[static_cast<std::size_t>(rank)]; }
  /// Numbers that a slot of `rank` has.
  std::size_t size_of(int rank) const;
};

/// What comes of sums between `bounds`, as GradientReducer::bounds() gives them, with the gradients
/// from `first_gradient` on.
Shards make_shards(const allreduce::Communicator& communicator,
                   std::span<const std::uint64_t> bounds, std::size_t first_gradient);

/// Copies `packed`, the values of `ranges`, to where they belong in `whole`.
void unpack(std::span<const float> packed, std::span<const Range> ranges, std::span<float> whole);
/// Copies what `piece`, which begins at number `first` of the whole, has of `ranges` to `packed`.
void pack(std::span<const float> piece, std::size_t first, std::span<const Range> ranges,
          std::span<float> packed);

/// Everything that training changes, named: the parameters, BatchNorm's running statistics and the
/// optimizer's slots (the moving average among them). What a checkpoint holds. Owns no memory.
///
/// Where each rank has a part of its own of it, as where the ranks share the optimizer's slots,
/// layout() is of all of it, and this rank has a shard of some buffers.
class TrainingState {
 public:
  /// `memory`: where all of it lies; outlives this object. `averaged_statistics` is empty where the
  /// run has no moving average. `shards`: of the slots but the moving average; outlives this
  /// object; null: they are whole.
  TrainingState(const model::Graph& graph, Memory& memory, View parameters, View statistics,
                const std::vector<optim::Optimizer::Slot>& slots, View averaged_statistics = {},
                const Shards* shards = nullptr);

  /// One more tensor, of one extent, called `name` in checkpoints.
  void add(const std::string& name, View values);

  /// What compression keeps, where it does: one tensor for each rank that keeps some, of which this
  /// rank has its own in `kept`, and `complete`, 1 in checkpoints that have those of all ranks.
  /// Both lie in the host's memory, wherever the rest does. `refresh` brings `kept` up to date.
  /// `shards`: one range of each rank, one behind the other. It and the views outlive this object,
  /// whose other buffers have no shards.
  void add_kept(View kept, View complete, const Shards& shards, std::function<void()> refresh);
  /// The buffer of `complete`.
  std::optional<std::size_t> complete() const { return complete_; }
  /// Brings up to date what mirrors something that is kept elsewhere: call it before buffers() are
  /// read. The other members do it themselves.
  void refresh() const {
    if (refresh_) refresh_();
  }

  /// Names and places of all tensors, as a checkpoint stores them.
  const io::StateLayout& layout() const { return layout_; }
  const std::vector<View>& buffers() const { return buffers_; }
  const Shards* shards() const { return shards_; }
  /// Whether this rank has its shard of that buffer only.
  bool has_shard(std::size_t buffer) const { return shards_ != nullptr && sharded_[buffer]; }
  /// Whether that buffer came by add_kept().
  bool is_kept(std::size_t buffer) const {
    return complete_ && (buffer == *complete_ || has_shard(buffer));
  }
  /// Takes over every buffer's values: as many sources, of the same sizes in the same order.
  void copy_from(std::span<const std::vector<float>> sources) const;
  /// The values of every buffer.
  std::vector<std::vector<float>> copy() const;
  /// Gives the values that rank 0 has of every buffer, whole, to all ranks; but where `kept` is
  /// false, what add_kept() added stays as it is. Collective, the same `kept` on all ranks.
  void share(std::vector<std::vector<float>> values, bool kept,
             allreduce::Communicator& communicator, const allreduce::MpiSession& session) const;
  /// XXH64 of each tensor's bytes, in the order of layout(): those that a checkpoint holds; 0 for
  /// those of which this rank has a shard. Waits for what computes them.
  std::vector<std::uint64_t> hashes() const;
  /// The hashes of all tensors, also those that are shared. Collective.
  std::vector<std::uint64_t> hashes(const allreduce::MpiSession& session) const;

 private:
  void place_parameters(const model::Graph& graph, const std::string& folder, View buffer);
  void place_slot(const model::Graph& graph, const std::string& folder, View buffer, bool sharded);
  void add_parameters(const model::Graph& graph, const std::string& folder, bool frozen_too);
  void place_statistics(const model::Graph& graph, const std::string& folder, View buffer);
  void push_buffer(View buffer, std::size_t size, bool sharded = false);
  void share_shards(const Memory& memory, View own, std::span<const float> values, std::size_t size,
                    const allreduce::MpiSession& session) const;
  std::vector<float> whole(std::size_t buffer, const allreduce::MpiSession& session) const;
  const Memory& memory_of(std::size_t buffer) const {
    if (is_kept(buffer)) return host_memory_;
    return memory_;
  }
  static std::uint64_t hash_of(View values, const Memory& memory, std::span<float> piece);

  Memory& memory_;
  HostMemory host_memory_;
  const Shards* shards_;
  std::vector<View> buffers_;
  std::vector<bool> sharded_;  // by buffer
  io::StateLayout layout_;
  std::optional<std::size_t> complete_;
  std::function<void()> refresh_;
};

}  // namespace ringtrain::train
