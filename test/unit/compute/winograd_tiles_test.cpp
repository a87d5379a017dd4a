// What Winograd convolutions fetch ahead, which changes no result: a wrong address would go unseen.
#include <cstddef>
#include <memory>
#include <set>
#include <tuple>
#include <vector>

#include "compute/onednn/winograd/rounds.hpp"
#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::compute::onednn;

namespace {

// A batch of images with a whole number of cache lines, beginning at a line.
template <class T>
struct Images {
  Images(int batch, int height, int width, int blocks, int block, bool channels_last)
      : elements(std::size_t(batch) * height * width * blocks * block),
        memory(elements + 64),
        plane{nullptr,
              elements / batch,
              std::size_t(width) * (channels_last ? blocks * block : block),
              std::size_t(channels_last ? blocks * block : block),
              channels_last ? std::size_t(block) : std::size_t(height) * width * block,
              height,
              width,
              blocks} {
    void* begin = memory.data();
    std::size_t bytes = memory.size() * sizeof(T);
    plane.data = static_cast<const T*>(std::align(64, elements * sizeof(T), begin, bytes));
  }
  std::set<const char*> lines() const {
    std::set<const char*> all;
    for (const T* at = plane.data; at < plane.data + elements; at += 64 / sizeof(T))
      all.insert(reinterpret_cast<const char*>(at));
    return all;
  }
  std::size_t elements;
  std::vector<T> memory;
  Plane<const T> plane;
};

template <class T>
void check_lines(int block, bool channels_last) {
  const int blocks = GENERATE(1, 2, 3), height = GENERATE(1, 4, 7, 16), width = GENERATE(8, 16, 20);
  // 3x3 and 5x5 with and without padding, and as input gradients of those; a row; a column.
  const auto [down, across, before] =
      GENERATE(std::tuple{3, 3, 1}, std::tuple{3, 3, 0}, std::tuple{5, 5, 2}, std::tuple{5, 5, 0},
               std::tuple{3, 3, 2}, std::tuple{5, 5, 4}, std::tuple{1, 7, 3}, std::tuple{3, 1, 1});
  const int results_down = height + 2 * (down > 1 ? before : 0) - down + 1,
            results_across = width + 2 * (across > 1 ? before : 0) - across + 1;
  if (results_down < 1 || results_across < 1) return;
  CAPTURE(block, channels_last, blocks, height, width, down, across, before);
  const int tile_height = down > 1 ? tile_results : 1, tile_width = across > 1 ? tile_results : 1;
  TileGrid grid{tile_height,
                tile_width,
                (results_down + tile_height - 1) / tile_height,
                (results_across + tile_width - 1) / tile_width,
                down > 1 ? before : 0,
                across > 1 ? before : 0,
                down - 1,
                across - 1,
                0};
  grid.tiles = std::size_t(3) * grid.down * grid.across;
  const Images<T> images(3, height, width, blocks, block, channels_last);

  std::set<const char*> fetched;
  for (std::size_t tile = 0; tile < grid.tiles; ++tile)
    for_each_line(images.plane, grid, tile, false, [&](const char* line) { fetched.insert(line); });

  CHECK(fetched == images.lines());
}

}  // namespace

TEST_CASE("winograd: tiles fetch every line of their images and no other", "[winograd]") {
  SECTION("blocked") { check_lines<float>(16, false); }
  SECTION("blocked for AVX2") { check_lines<float>(8, false); }
  SECTION("bf16") { check_lines<Bf16>(16, true); }
  SECTION("bf16 for AVX2") { check_lines<Bf16>(8, true); }
}

TEST_CASE("winograd: threads fetch each tile once before its round", "[winograd]") {
  const std::size_t tiles = GENERATE(8, 100, 1000, 4099);
  const int threads = GENERATE(1, 2, 3);
  const bool own = GENERATE(false, true);
  CAPTURE(tiles, threads, own);
  const Rounds rounds(tiles, 36, 32, 32, threads, own);
  const int members = rounds.shared ? threads : 1;

  std::vector<int> times(tiles);
  for (int team = 0; team < rounds.teams; ++team) {
    for (std::size_t tile = 0; tile < rounds.tiles_of(team); ++tile)
      ++times[rounds.first_tile(team) + tile];  // of its first round, which nobody fetches
    for (std::size_t round = team; round < rounds.count; round = rounds.after(round))
      for (int member = 0; member < members; ++member) {
        const TileRange next = next_tiles(rounds, round, member, members);
        for (std::size_t tile = 0; tile < next.count; ++tile) ++times[next.first + tile];
      }
  }

  CHECK(times == std::vector<int>(tiles, 1));
}
