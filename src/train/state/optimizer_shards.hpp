#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "ringtrain/allreduce/communicator/communicator.hpp"

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

}  // namespace ringtrain::train
