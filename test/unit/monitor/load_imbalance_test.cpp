#include "ringtrain/monitor/load_imbalance.hpp"

#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::monitor;

namespace {

// `steps` more steps of these seconds in forward, and as many in waiting for one another.
void add(RankStats& account, std::uint64_t steps, double forward_s) {
  account.spent.steps += steps;
  account.spent.phases[metrics::Phase::forward] += double(steps) * forward_s;
  account.spent.phases[metrics::Phase::communication] += double(steps) * (0.050 - forward_s);
}

}  // namespace

TEST_CASE("rank spread: tells least, median and most of each phase, and the rank of the most") {
  LoadImbalance spread({"a", "a", "b"});
  std::vector<RankStats> now(3);
  for (const std::size_t r : {0, 1, 2}) add(now[r], 10, r == 1 ? 0.030 : 0.010 + 0.001 * double(r));

  const auto told = spread.look(now);

  REQUIRE(told);
  CHECK((*told)[metrics::Phase::forward].min == Approx(0.010));
  CHECK((*told)[metrics::Phase::forward].median == Approx(0.012));
  CHECK((*told)[metrics::Phase::forward].max == Approx(0.030));
  CHECK((*told)[metrics::Phase::forward].max_rank == 1);
  CHECK((*told)[metrics::Phase::communication].max_rank == 0);
  CHECK(told->own_work.max == Approx(0.030));
  CHECK(told->slowest == "slowest rank 1 (a): forward 30.0 ms, median 12.0");
}

TEST_CASE("rank spread: is of the steps since it was told last, once all ranks have enough") {
  LoadImbalance spread({"a", "b"});
  std::vector<RankStats> now(2);
  for (RankStats& account : now) add(account, 10, 0.040);
  REQUIRE(spread.look(now));
  CHECK_FALSE(spread.look(now));
  for (RankStats& account : now) add(account, LoadImbalance::least_steps - 1, 0.010);
  CHECK_FALSE(spread.look(now));
  for (RankStats& account : now) add(account, 1, 0.010);

  const auto told = spread.look(now);

  REQUIRE(told);
  CHECK(told->own_work.max == Approx(0.010));
  CHECK(told->slowest.empty());
}

TEST_CASE("rank spread: of ranks nobody has heard of there is none") {
  LoadImbalance spread({"a", "b", "c"});
  std::vector<RankStats> now(3);
  add(now[0], 10, 0.010);
  CHECK_FALSE(spread.look(now));
  CHECK_FALSE(spread.look({}));
  add(now[2], 10, 0.020);

  const auto told = spread.look(now);

  REQUIRE(told);
  CHECK(told->own_work.max_rank == 2);
  CHECK(told->slowest == "slowest rank 2 (c): forward 20.0 ms, median 10.0");
}
