// What kernels are launched with, at odd sizes.
#include "compute/cuda/kernels/arguments/geometry.hpp"

#include <vector>

#include "compute/cuda/kernels/device/channel_sums.hpp"
#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::compute;
using namespace ringtrain::compute::cuda::kernels;

TEST_CASE("cuda geometry: items get a thread each, up to a limit") {
  CHECK(item_grid(0).blocks == 0);
  CHECK(item_grid(1) == Grid{1, 256, 0});
  CHECK(item_grid(256) == Grid{1, 256, 0});
  CHECK(item_grid(257) == Grid{2, 256, 0});
  CHECK(item_grid(std::size_t(1) << 30) == Grid{16384, 256, 0});
}

TEST_CASE("cuda geometry: every pixel of every vector belongs to exactly one thread") {
  const std::size_t pixels = GENERATE(0, 1, 2, 31, 255, 256, 257, 4099);
  const std::size_t vectors = GENERATE(1, 3, 8, 17, 32, 33, 40, 64, 257);
  const std::size_t each = GENERATE(1, 16), most = GENERATE(1, 7, 1024);
  CAPTURE(pixels, vectors, each, most);

  const ChannelGrid grid = channel_grid(pixels, vectors, each, most);

  REQUIRE(grid.threads() <= block_threads);
  REQUIRE(grid.blocks() <= std::max<std::size_t>(most, grid.column_blocks));
  std::vector<int> visits(pixels * vectors);
  for (std::uint32_t block = 0; block < grid.blocks(); ++block)
    for (std::uint32_t thread = 0; thread < grid.threads(); ++thread) {
      const std::uint32_t vector = grid.vector(block, thread);
      if (vector >= vectors) continue;
      for (std::uint32_t pixel = grid.first_pixel(block, thread); pixel < pixels;
           pixel += grid.pixel_stride())
        ++visits[pixel * vectors + vector];
    }
  CHECK(std::ranges::count(visits, 1) == std::ssize(visits));
}

TEST_CASE("cuda geometry: no channels, no blocks") {
  CHECK(channel_grid(5, 0, 1, 1).blocks() == 0);
}

TEST_CASE("cuda geometry: folding adds up any number of values") {
  const std::uint32_t count = GENERATE(1, 2, 3, 5, 8, 15, 16, 17, 255, 256);
  std::vector<int> values(count, 1);

  for (int round = 0; round < folds(count); ++round)
    for (std::uint32_t i = 0; i < count; ++i)
      if (const std::uint32_t other = fold_partner(i, round, count); other < count)
        values[i] += values[other];

  CHECK(values[0] == static_cast<int>(count));
}

TEST_CASE("cuda geometry: 16 bytes at once only where all is aligned") {
  alignas(16) const char memory[32] = {};

  CHECK(is_wide(Element::fp16, {8, 64}, {memory, memory + 16, nullptr}));
  CHECK(is_wide(Element::fp32, {4}, {memory}));
  CHECK_FALSE(is_wide(Element::fp16, {8, 12}, {memory}));
  CHECK_FALSE(is_wide(Element::fp32, {4}, {memory, memory + 8}));
}

TEST_CASE("cuda geometry: the workspace of sums holds what blocks leave") {
  const std::size_t pixels = GENERATE(0, 1, 100, 5000, 802816),
                    channels = GENERATE(1, 3, 8, 64, 2048);
  CAPTURE(pixels, channels);

  for (const std::size_t width : {1, 4, 8})
    if (channels % width == 0)
      CHECK(sums_grid(pixels, channels / width).row_blocks * 2 * channels * sizeof(float) <=
            sums_workspace(pixels, channels, 2));
  CHECK(sums_workspace(pixels, channels, 2) <= 64 << 20);
}
