#pragma once
#include <omp.h>

#include <algorithm>
#include <cstddef>

#include "compute/onednn/tensor.hpp"
#include "compute/onednn/winograd/kernels.hpp"

namespace ringtrain::compute::onednn {

/// A round's transformed tiles and products stay in a core's second-level cache, with the next
/// one's pixels. Where filters are larger than `round_bytes`, a round is as large as they are: it
/// reads them once. All rounds at once have a limit.
inline constexpr std::size_t round_bytes = std::size_t{320} << 10, shortest_round = 16,
                             most_tile_bytes = std::size_t{256} << 20;
/// MultiplyPosition takes rows in such groups or smaller ones. Threads that share a round divide
/// its products by positions and by chunks of rows.
inline constexpr std::size_t row_group = 8, row_chunk = 32;
/// Smaller activations are likely to be in a cache when they are read. Longer rounds would lose
/// what they have fetched.
inline constexpr std::size_t fewest_prefetched_bytes = std::size_t{2} << 20,
                             longest_prefetching_round = std::size_t{640} << 10;

/// A tensor's pixels.
template <class T>
Plane<T> plane_of(const Tensor& t) {
  return {t.as<T>(),      t.image(),      t.shape.width * t.pixel_step(),
          t.pixel_step(), t.block_step(), t.shape.height,
          t.shape.width,  t.blocks()};
}

/// `n` as a multiple of `to`.
constexpr std::size_t rounded_up(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

/// A thread's share of some items.
struct ThreadShare {
  ThreadShare(std::size_t items, int member, int members)
      : first(items * member / members), count(items * (member + 1) / members - first) {}
  std::size_t end() const { return first + count; }
  std::size_t first, count;
};

/// How the tiles of a batch are divided into rounds. `own`: whether each thread may have rounds of
/// its own, as a team of one. All threads share each round where it may not, or where tiles are
/// few.
struct Rounds {
  Rounds(std::size_t tiles, int positions, std::size_t rows, std::size_t columns, int threads,
         bool own)
      : tiles(tiles) {
    const std::size_t bytes = positions * sizeof(float) * (rows + columns);
    std::size_t each = std::max(round_bytes / bytes, rows * columns / (rows + columns));
    each = std::max(std::min(each, most_tile_bytes / (bytes * threads)), row_group);
    const std::size_t most = rounded_up((tiles + threads - 1) / threads, row_group);
    own = own && (threads == 1 || most >= std::min(each, shortest_round));
    if (!own) each = std::max(each, shortest_round * threads);
    const std::size_t sharing = own ? threads : 1, part = (tiles + sharing - 1) / sharing,
                      rounds = (part + each - 1) / each;
    length = rounded_up((part + rounds - 1) / rounds, row_group);
    count = (tiles + length - 1) / length;
    shared = !own;
    teams = own ? static_cast<int>(std::min<std::size_t>(threads, count)) : 1;
    prefetch = length * bytes / (own ? 1 : threads) <= longest_prefetching_round;
  }
  std::size_t first_tile(std::size_t round) const { return round * length; }
  /// None where there is no such round.
  std::size_t tiles_of(std::size_t round) const {
    return round < count ? std::min(length, tiles - first_tile(round)) : 0;
  }
  /// The same team's next round.
  std::size_t after(std::size_t round) const { return round + (shared ? 1 : teams); }

  /// A member's share of the round's tiles.
  ThreadShare share(std::size_t round, int member, int members) const {
    const std::size_t count = tiles_of(round);
    ThreadShare share((count + together - 1) / together, member, members);
    share.first = std::min(share.first * together, count);
    share.count = std::min(share.count * together, count - share.first);
    return share;
  }

  std::size_t tiles, length, count;  // tiles of the batch and of a round; rounds
  std::size_t together = 1;          // tiles that one thread takes all: row_group or 1
  int teams;
  bool shared, prefetch;
};

/// Each team's rounds by its members: f(round, team, member, members).
template <class F>
void for_each_round(int threads, const Rounds& rounds, const F& f) {
#pragma omp parallel num_threads(threads)
  {
    const int here = omp_get_thread_num(), all = omp_get_num_threads();
    if (rounds.shared)
      for (std::size_t round = 0; round < rounds.count; ++round) f(round, 0, here, all);
    else
      for (int team = here; team < rounds.teams; team += all)
        for (std::size_t round = team; round < rounds.count; round = rounds.after(round))
          f(round, team, 0, 1);
    order_stores();
  }
}

/// Threads that share a round are all of OpenMP's team, so its barrier is theirs.
inline void barrier_of(int members) {
  if (members > 1) {
#pragma omp barrier
  }
}

/// f(position, row, rows) for a member's share of a round's products of `rows` rows. Before the
/// i-th of n calls, between(i, n).
template <class Between, class F>
void for_each_product(std::size_t positions, std::size_t rows, int member, int members,
                      const Between& between, const F& f) {
  const std::size_t chunk = members > 1 ? row_chunk : rows, chunks = (rows + chunk - 1) / chunk;
  const ThreadShare mine(positions * chunks, member, members);
  for (std::size_t i = mine.first; i < mine.end(); ++i) {
    const std::size_t row = i % chunks * chunk;
    between(i - mine.first, mine.count);
    f(i / chunks, row, std::min(chunk, rows - row));
  }
}

/// Tiles whose pixels a thread fetches while it takes products: these read what is in caches. The
/// hardware does not foresee a tile's rows, which are too short.
struct TileRange {
  /// The i-th of n parts of their pixels of `t`, for reading or writing as prefetch_pixels() says.
  template <class T>
  void prefetch(const Tensor& t, const Plane<T>& pixels, const TileGrid& grid, std::size_t i,
                std::size_t n) const {
    if (t.bytes() < fewest_prefetched_bytes) return;
    for (std::size_t tile = count * i / n; tile < count * (i + 1) / n; ++tile)
      prefetch_pixels(pixels, grid, first + tile,
                      tile < std::size_t(grid.across));  // above may be another thread's
  }
  std::size_t first, count;
};

/// A member's share of its team's next round.
inline TileRange next_tiles(const Rounds& rounds, std::size_t round, int member, int members) {
  const std::size_t next = rounds.after(round);
  const ThreadShare mine = rounds.share(next, member, members);
  return {rounds.first_tile(next) + mine.first, mine.count};
}

}  // namespace ringtrain::compute::onednn
