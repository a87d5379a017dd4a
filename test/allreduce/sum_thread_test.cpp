#include "allreduce/sum_thread.hpp"

#include <atomic>
#include <catch2/catch.hpp>
#include <vector>

#include "ringtrain/base/error.hpp"

using namespace ringtrain;

TEST_CASE("SumThread: sums in the order of start, and finish waits for all") {
  std::vector<std::size_t> summed;
  SumThread thread([&](const StartedSum& sum) { summed.push_back(sum.gradients.size()); });
  std::vector<float> flat(100);

  for (std::size_t size = 1; size <= 100; ++size) thread.start({{flat.data(), size}});
  thread.finish();

  REQUIRE(summed.size() == 100);
  for (std::size_t i = 0; i < 100; ++i) CHECK(summed[i] == i + 1);
}

TEST_CASE("SumThread: a failure comes back to the caller, and no later sum is tried") {
  std::atomic<int> tried{0};
  SumThread thread([&](const StartedSum&) {
    ++tried;
    throw Error("sum", "broken");
  });
  float value = 0;

  thread.start({{&value, 1}});

  CHECK_THROWS_WITH(thread.finish(), Catch::Contains("broken"));
  CHECK_THROWS_WITH(thread.start({{&value, 1}}), Catch::Contains("broken"));
  CHECK(tried == 1);
}

TEST_CASE("SumThread: ends when nothing was ever started") {
  SumThread thread([](const StartedSum&) {});

  thread.finish();
}
