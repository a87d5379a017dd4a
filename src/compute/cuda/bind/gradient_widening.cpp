#include "compute/cuda/bind/gradient_widening.hpp"

#include <algorithm>
#include <functional>

namespace ringtrain::compute::cuda {

void GradientWidening::add(ParameterRange range, const void* from) {
  for (std::size_t done = 0; done < range.count; done += kernels::most_widened) {
    const auto count = std::min<std::size_t>(kernels::most_widened, range.count - done);
    const bool is_aligned =
        reinterpret_cast<std::uintptr_t>(gradients_.data() + range.first + done) % 16 == 0;
    sorted_.push_back({range.first,
                       {static_cast<const std::byte*>(from) + done * bytes_of(element_),
                        range.first + done, static_cast<std::uint32_t>(count),
                        static_cast<std::uint32_t>(is_aligned ? count / 8 : 0)}});
  }
}

void GradientWidening::complete() {
  std::ranges::stable_sort(sorted_, std::greater(), &Tile::first);
  std::vector<kernels::WidenTile> tiles;
  for (const Tile& tile : sorted_) tiles.push_back(tile.at);
  tiles_ = DeviceBytes(tiles.size() * sizeof(kernels::WidenTile));
  if (!tiles.empty()) write_and_wait(tiles_.data(), tiles.data(), tiles_.size());
}

void GradientWidening::queue(std::size_t first) {
  const auto begin = sorted_.begin() + static_cast<std::ptrdiff_t>(queued_);
  const auto end = std::ranges::find_if(begin, sorted_.end(),
                                        [&](const Tile& tile) { return tile.first < first; });
  const auto count = static_cast<std::size_t>(end - begin);
  const auto* tiles = reinterpret_cast<const kernels::WidenTile*>(tiles_.data());
  kernels::widen_gradients(element_, tiles + queued_, count, gradients_.data(), stream_);
  queued_ += count;
}

}  // namespace ringtrain::compute::cuda
