#include "ringtrain/monitor/load_imbalance.hpp"
#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::monitor;
using Catch::Contains;

namespace {

const std::vector<std::string> three_hosts = {"a", "b", "c"};

// Ranks whose steps take 10 ms each, but for one kind of work on one rank.
class Ranks {
 public:
  std::vector<std::string> run(int steps, std::size_t slow_rank = 0,
                               metrics::Phase phase = metrics::Phase::data_wait,
                               double extra_s = 0) {
    for (std::size_t r = 0; r < spent_.size(); ++r) {
      spent_[r].steps += steps;
      for (const metrics::Phase half : {metrics::Phase::forward, metrics::Phase::backward})
        spent_[r].phases[half] += 0.005 * steps;
      if (r == slow_rank) spent_[r].phases[phase] += extra_s * steps;
    }
    return stragglers_.look(spent_, three_hosts);
  }

 private:
  std::vector<PhaseTotals> spent_{3};
  Stragglers stragglers_{3};
};

}  // namespace

TEST_CASE("stragglers: equal ranks are none") {
  Ranks ranks;
  for (int i = 0; i < 5; ++i) CHECK(ranks.run(20).empty());
}

TEST_CASE("stragglers: the slow rank is told once, with what it is slow in, until it keeps up") {
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

TEST_CASE("stragglers: what is within tolerance, or has happened once, is no reason to speak") {
  Ranks ranks;
  CHECK(ranks.run(20, 1, metrics::Phase::forward, 0.0049).empty());
  CHECK(ranks.run(40, 1, metrics::Phase::forward, 0.1 / 40).empty());
}

TEST_CASE("stragglers: who waits for others is none") {
  Ranks ranks;
  CHECK(ranks.run(20, 1, metrics::Phase::communication, 1).empty());
}
