#include "train/state/optimizer_shards.hpp"

#include <algorithm>

namespace ringtrain::train {

std::size_t Shards::size_of(int rank) const {
  std::size_t size = 0;
  for (const Range& range : ranges[static_cast<std::size_t>(rank)]) size += range.count;
  return size;
}

Shards make_shards(const allreduce::Communicator& communicator,
                   std::span<const std::uint64_t> bounds, std::size_t first_gradient) {
  std::vector<std::size_t> counts;
  for (std::size_t b = 0; b + 1 < bounds.size(); ++b) counts.push_back(bounds[b + 1] - bounds[b]);
  Shards shards{communicator.rank(), {}};
  for (int rank = 0; rank < communicator.size(); ++rank) {
    const std::vector<Range> parts = communicator.own_parts(counts, rank);
    std::vector<Range>& ranges = shards.ranges.emplace_back();
    for (std::size_t b = 0; b < parts.size(); ++b) {
      const std::size_t first = std::max(bounds[b] + parts[b].first, first_gradient),
                        end = bounds[b] + parts[b].end();
      if (end > first) ranges.push_back({first - first_gradient, end - first});
    }
  }
  return shards;
}

void unpack(std::span<const float> packed, std::span<const Range> ranges, std::span<float> whole) {
  for (const Range& range : ranges) {
    std::ranges::copy(packed.first(range.count), whole.subspan(range.first).begin());
    packed = packed.subspan(range.count);
  }
}

void pack(std::span<const float> piece, std::size_t first, std::span<const Range> ranges,
          std::span<float> packed) {
  for (const Range& range : ranges) {
    const std::size_t begin = std::max(range.first, first),
                      end = std::min(range.end(), first + piece.size());
    if (end > begin)
      std::ranges::copy(piece.subspan(begin - first, end - begin),
                        packed.subspan(begin - range.first).begin());
    packed = packed.subspan(range.count);
  }
}

}  // namespace ringtrain::train
