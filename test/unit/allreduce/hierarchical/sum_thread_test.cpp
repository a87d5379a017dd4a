#include "allreduce/hierarchical/sum_thread.hpp"

#include <atomic>
#include <chrono>
#include <future>
#include <thread>
#include <vector>

#include "ringtrain/base/error.hpp"
#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::allreduce;

TEST_CASE("SumThread: sums in the order of start, and finish waits for all") {
  std::vector<std::size_t> summed;
  SumThread thread([&](const PendingSum& sum) { summed.push_back(sum.count); });
  std::vector<float> flat(100);

  for (std::size_t size = 1; size <= 100; ++size) thread.start({{flat.data()}, size});
  thread.finish();

  REQUIRE(summed.size() == 100);
  for (std::size_t i = 0; i < 100; ++i) CHECK(summed[i] == i + 1);
}

TEST_CASE("SumThread: a failure comes back to the caller, and no later sum is tried") {
  std::atomic<int> tried{0};
  SumThread thread([&](const PendingSum&) {
    ++tried;
    throw Error("sum", "broken");
  });
  float value = 0;

  thread.start({{&value}, 1});

  CHECK_THROWS_WITH(thread.finish(), Catch::Contains("broken"));
  CHECK_THROWS_WITH(thread.start({{&value}, 1}), Catch::Contains("broken"));
  CHECK(tried == 1);
}

TEST_CASE("SumThread: ends when nothing was ever started") {
  std::atomic<int> sums{0};
  // A thread of its own, so that one that waits for ever is a failure soon.
  std::packaged_task<void()> use([&] {
    SumThread thread([&](const PendingSum&) { ++sums; });
    thread.finish();
  });
  std::future<void> ended = use.get_future();
  std::thread user(std::move(use));

  const bool in_time = ended.wait_for(std::chrono::seconds(30)) == std::future_status::ready;

  if (!in_time) {
    user.detach();
    FAIL("finish() or the destructor waits for a sum that nobody started");
  }
  user.join();
  CHECK_NOTHROW(ended.get());
  CHECK(sums == 0);
}
