#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ringtrain/compute/memory.hpp"
#include "ringtrain/io/checkpoint.hpp"
#include "ringtrain/model/graph.hpp"
#include "ringtrain/train/optimizer.hpp"

namespace ringtrain {

/// Everything that training changes, named: the parameters, BatchNorm's running statistics and the
/// optimizer's slots (the moving average among them). What a checkpoint holds. Owns no memory.
class TrainingState {
 public:
  /// `memory`: where all of it lies; outlives this object. `averaged_statistics` is empty where the
  /// run has no moving average.
  TrainingState(const Graph& graph, Memory& memory, View parameters, View statistics,
                const std::vector<Optimizer::Slot>& slots, View averaged_statistics = {});

  /// One more tensor, of one extent, called `name` in checkpoints.
  void add(const std::string& name, View values);

  /// Names and places of all tensors, as a checkpoint stores them.
  const StateLayout& layout() const { return layout_; }
  const std::vector<View>& buffers() const { return buffers_; }
  /// Takes over every buffer's values: as many sources, of the same sizes in the same order.
  void copy_from(std::span<const std::vector<float>> sources) const;
  /// The values of every buffer.
  std::vector<std::vector<float>> copy() const;
  /// XXH64 of each tensor's bytes, in the order of layout(): those that a checkpoint holds. Waits
  /// for what computes them.
  std::vector<std::uint64_t> hashes() const;

 private:
  void place_parameters(const Graph& graph, const std::string& folder, View buffer);
  void place_statistics(const Graph& graph, const std::string& folder, View buffer);
  std::uint64_t hash_of(View values, std::span<float> piece) const;

  Memory& memory_;
  std::vector<View> buffers_;
  StateLayout layout_;
};

}  // namespace ringtrain
