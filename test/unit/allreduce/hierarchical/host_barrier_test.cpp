#include "allreduce/hierarchical/hierarchical_allreduce.hpp"
#include "support/catch.hpp"
#include "support/thread_ring.hpp"

using namespace ringtrain;
using namespace ringtrain::allreduce;

TEST_CASE("HostBarrier: nobody passes before all have come, round after round") {
  const bool crowded = GENERATE(false, true);
  const int ranks = GENERATE(1, 2, 5);
  CAPTURE(crowded, ranks);
  BarrierState state{};
  std::atomic<int> arrivals{0};
  std::atomic<bool> early{false};

  on_threads(ranks, [&](int) {
    HostBarrier barrier(state, ranks, crowded, {});
    for (int round = 1; round <= 500; ++round) {
      ++arrivals;
      barrier.wait();
      if (arrivals < round * ranks) early = true;
      barrier.wait();
    }
  });

  CHECK_FALSE(early);
  CHECK(arrivals == 500 * ranks);
}

TEST_CASE("HostBarrier: a sleeping rank is woken by the last to come") {
  BarrierState state{};

  on_threads(2, [&](int rank) {
    HostBarrier barrier(state, 2, true, {});
    if (rank == 0)
      while (state.sleepers == 0) std::this_thread::yield();
    barrier.wait();
  });

  CHECK(state.sleepers == 0);
}

TEST_CASE("HostBarrier: a stop request ends the wait for a rank that never comes") {
  BarrierState state{};
  std::stop_source stop;
  HostBarrier barrier(state, 2, true, stop.get_token());
  std::jthread stopper([&] {
    while (state.sleepers == 0) std::this_thread::yield();
    stop.request_stop();
  });

  CHECK_THROWS_AS(barrier.wait(), Error);
}
