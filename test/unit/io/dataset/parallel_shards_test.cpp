#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

#include "io/dataset/shards/sharded_dataset.hpp"
#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::io;

namespace {

void no_progress(std::size_t) {}

}  // namespace

TEST_CASE("each shard: every one is worked on once, whatever the threads") {
  const int threads = GENERATE(1, 2, 3, 8);
  const std::size_t count = GENERATE(0, 1, 2, 7, 100);
  std::vector<std::atomic<int>> calls(count);

  each_shard(
      count, threads, [&](std::size_t i) { ++calls[i]; }, no_progress);

  for (const auto& called : calls) CHECK(called == 1);
}

TEST_CASE("each shard: the first failure is the one that is told, and ends the work") {
  const int threads = GENERATE(1, 3, 8);
  for (int repeated = 0; repeated < 50; ++repeated) {
    std::atomic<std::size_t> last = 0;
    const auto work = [&](std::size_t i) {
      last = i;
      if (i >= 20) throw std::runtime_error(std::to_string(i));
    };

    REQUIRE_THROWS_WITH(each_shard(10'000, threads, work, no_progress), "20");
    REQUIRE(last < 100);
  }
}
