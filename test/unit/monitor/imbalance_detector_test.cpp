#include "ringtrain/monitor/imbalance_detector.hpp"

#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::monitor;
using Catch::Contains;

namespace {

// `steps` more steps of these seconds in forward, and as many in waiting for one another.
void add(RankStats& account, std::uint64_t steps, double forward_s) {
  account.spent.steps += steps;
  account.spent.phases[metrics::Phase::forward] += double(steps) * forward_s;
  account.spent.phases[metrics::Phase::communication] += double(steps) * (0.050 - forward_s);
}

// Ranks whose steps take 10 ms each, but for one kind of work on one rank.
class Ranks {
 public:
  std::vector<std::string> run(int steps, std::size_t slow_rank = 0,
                               metrics::Phase phase = metrics::Phase::data_wait,
                               double extra_s = 0) {
    for (std::size_t r = 0; r < now_.size(); ++r) {
      now_[r].spent.steps += steps;
      for (const metrics::Phase half : {metrics::Phase::forward, metrics::Phase::backward})
        now_[r].spent.phases[half] += 0.005 * steps;
      if (r == slow_rank) now_[r].spent.phases[phase] += extra_s * steps;
    }
    const auto window = detector_.compare(now_);
    return window ? window->events : std::vector<std::string>{};
  }

 private:
  std::vector<RankStats> now_{3};
  ImbalanceDetector detector_{{"a", "b", "c"}, ImbalanceDetector::reported};
};

}  // namespace

TEST_CASE(
    "imbalance: a window has least, median and most of each phase, and the rank of the most") {
  ImbalanceDetector detector({"a", "a", "b"}, ImbalanceDetector::logged);
  std::vector<RankStats> now(3);
  for (const std::size_t r : {0, 1, 2}) add(now[r], 10, r == 1 ? 0.030 : 0.010 + 0.001 * double(r));

  const auto window = detector.compare(now);

  REQUIRE(window);
  const metrics::PhaseSpread& spread = window->spread;
  CHECK(spread[metrics::Phase::forward].min == Approx(0.010));
  CHECK(spread[metrics::Phase::forward].median == Approx(0.012));
  CHECK(spread[metrics::Phase::forward].max == Approx(0.030));
  CHECK(spread[metrics::Phase::forward].max_rank == 1);
  CHECK(spread[metrics::Phase::communication].max_rank == 0);
  CHECK(spread.own_work.max == Approx(0.030));
  CHECK(spread.slowest_text == "slowest rank 1 (a): forward 30.0 ms, median 12.0");
}

TEST_CASE("imbalance: a window is of the steps since the last, once all ranks have enough") {
  ImbalanceDetector detector({"a", "b"}, ImbalanceDetector::logged);
  std::vector<RankStats> now(2);
  for (RankStats& account : now) add(account, 10, 0.040);
  REQUIRE(detector.compare(now));
  CHECK_FALSE(detector.compare(now));
  for (RankStats& account : now) add(account, ImbalanceDetector::logged.window_steps - 1, 0.010);
  CHECK_FALSE(detector.compare(now));
  for (RankStats& account : now) add(account, 1, 0.010);

  const auto window = detector.compare(now);

  REQUIRE(window);
  CHECK(window->spread.own_work.max == Approx(0.010));
  CHECK(window->spread.slowest_text.empty());
  CHECK(window->events.empty());
}

TEST_CASE("imbalance: ranks nobody has heard of are left out") {
  ImbalanceDetector detector({"a", "b", "c"}, ImbalanceDetector::logged);
  std::vector<RankStats> now(3);
  add(now[0], 10, 0.010);
  CHECK_FALSE(detector.compare(now));
  CHECK_FALSE(detector.compare({}));
  add(now[2], 10, 0.020);

  const auto window = detector.compare(now);

  REQUIRE(window);
  CHECK(window->spread.own_work.max_rank == 2);
  CHECK(window->spread.slowest_text == "slowest rank 2 (c): forward 20.0 ms, median 10.0");
}

TEST_CASE("imbalance: what is slow but no part of the step is no rank's fault") {
  ImbalanceDetector detector({"a", "b"}, ImbalanceDetector::logged);
  std::vector<RankStats> now(2);
  add(now[0], 10, 0.002);
  add(now[1], 10, 0.004);  // of steps of 50 ms

  CHECK(detector.compare(now)->spread.slowest_text.empty());
}

TEST_CASE("slow ranks: of equal ranks none is") {
  Ranks ranks;
  for (int i = 0; i < 5; ++i) CHECK(ranks.run(20).empty());
}

TEST_CASE("slow ranks: one is told once, with what it is slow in, until it keeps up") {
  Ranks ranks;
  const auto [kind, name] = GENERATE(table<metrics::Phase, std::string>(
      {{metrics::Phase::data_wait, "in data wait: 6.0 ms, where the median is 0.0 ms"},
       {metrics::Phase::backward, "in backward: 11.0 ms, where the median is 5.0 ms"}}));
  CHECK(ranks.run(20).empty());
  CHECK(ranks.run(19, 2, kind, 0.006).empty());  // too few steps to tell
  const auto told = ranks.run(1, 2, kind, 0.006);
  REQUIRE(told.size() == 1);
  CHECK_THAT(
      told[0],
      Contains("rank 2 on c holds up the others: 16.0 ms of work a step, 1.6 times the median") &&
          Contains(name));
  CHECK(ranks.run(20, 2, kind, 0.006).empty());
  CHECK(ranks.run(20) == std::vector<std::string>{"rank 2 on c keeps up again"});
  CHECK(ranks.run(20).empty());
}

TEST_CASE("slow ranks: what is within tolerance, or has happened once, is no reason to speak") {
  Ranks ranks;
  CHECK(ranks.run(20, 1, metrics::Phase::forward, 0.0049).empty());
  CHECK(ranks.run(40, 1, metrics::Phase::forward, 0.1 / 40).empty());
}

TEST_CASE("slow ranks: who waits for others is none") {
  Ranks ranks;
  CHECK(ranks.run(20, 1, metrics::Phase::communication, 1).empty());
}
