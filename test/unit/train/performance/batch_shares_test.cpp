#include "train/performance/batch_shares.hpp"

#include <numeric>

#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::train;

namespace {

using Counts = std::vector<int>;

Counts divided(int samples, std::vector<double> weights) { return divide(samples, weights); }

// All divisions of `left` samples among the ranks from `rank` on.
double least_of_all(int left, std::span<const RankSpeed> speeds, Counts& counts) {
  if (counts.size() + 1 == speeds.size()) {
    counts.push_back(left);
    const double seconds = slowest_s(counts, speeds);
    counts.pop_back();
    return seconds;
  }
  double least = std::numeric_limits<double>::infinity();
  const int others = static_cast<int>(speeds.size() - counts.size()) - 1;
  for (int count = 1; count <= left - others; ++count) {
    counts.push_back(count);
    least = std::min(least, least_of_all(left - count, speeds, counts));
    counts.pop_back();
  }
  return least;
}

}  // namespace

TEST_CASE(
    "shares: samples are divided in proportion, what is left over to the largest remainders") {
  CHECK(divided(16, {3, 5}) == Counts{6, 10});
  CHECK(divided(32, {1, 3}) == Counts{8, 24});
  CHECK(divided(10, {1, 1, 1}) == Counts{4, 3, 3});
  CHECK(divided(11, {1, 1, 1}) == Counts{4, 4, 3});
  CHECK(divided(10, {1, 2}) == Counts{3, 7});
  CHECK(divided(7, {1}) == Counts{7});
}

TEST_CASE("shares: every rank has a sample, however small its weight") {
  CHECK(divided(3, {1, 1000, 1}) == Counts{1, 1, 1});
  CHECK(divided(8, {1, 1000, 1}) == Counts{1, 6, 1});
  CHECK(divided(4, {1'000'000, 1, 1, 1}) == Counts{1, 1, 1, 1});
}

TEST_CASE("shares: the fastest division is that of all whose slowest rank is done first") {
  const auto speeds = GENERATE(values<std::vector<RankSpeed>>({
      {{1, 0}, {1, 0}},
      {{1, 0}, {2, 0}},
      {{1, 5}, {2, 0}},
      {{0.3, 0}, {0.3, 0}, {0.9, 0}},
      {{1, 0}, {100, 0}, {1, 3}},
      {{0.1, 40}, {0.1, 0}},
      {{0.7, 1}, {0.8, 2}, {0.9, 3}, {3, 0.1}},
  }));
  const int samples = GENERATE(4, 5, 16, 23);
  CAPTURE(speeds.size(), samples);
  Counts none;

  const Counts fastest = fastest_division(samples, speeds);

  CHECK(std::accumulate(fastest.begin(), fastest.end(), 0) == samples);
  CHECK(std::ranges::min(fastest) >= 1);
  CHECK(slowest_s(fastest, speeds) == Approx(least_of_all(samples, speeds, none)));
}

TEST_CASE("shares: a checkpoint's plans keep them, and those of others are left aside") {
  RunPlan plan;
  plan.ranks = 2;
  plan.micro_batch = 16;
  const std::string plans = R"({"threads":1})";

  plan.take_shares({8, 8}, 0);
  CHECK(with_shares(plans, plan) == plans);
  CHECK(shares_in(plans).empty());
  plan.take_shares({10, 6}, 1);
  CHECK(plan.share.first == 10);
  CHECK(plan.share.count == 6);
  CHECK(shares_in(with_shares(plans, plan)) == Counts{10, 6});

  for (const char* text : {"", "[3]", "{", R"({"shares":3})", R"({"shares":[3,"x"]})",
                           R"({"shares":[0,1]})", R"({"shares":[-1,1]})", R"({"shares":[1.5,1]})",
                           R"({"shares":[1,99999999999]})", R"({"shares":[60000000,60000000]})"})
    CHECK(shares_in(text).empty());
}

TEST_CASE("shares: equal ones make the same bits whether a checkpoint names them or not") {
  RunPlan plan;
  plan.ranks = 2;
  plan.micro_batch = 5;
  plan.take_shares({3, 2}, 0);  // equal but for the image that is left over
  const std::string none = R"({"threads":1})", named = R"({"threads":1,"shares":[3,2]})";

  CHECK(same_plans(none, none, plan));
  CHECK(same_plans(named, none, plan));
  CHECK(same_plans(none, named, plan));
  CHECK_FALSE(same_plans(R"({"threads":1,"shares":[2,3]})", none, plan));
  CHECK_FALSE(same_plans(R"({"threads":2,"shares":[3,2]})", none, plan));
  CHECK_FALSE(same_plans("{", none, plan));
  plan.take_shares({1, 4}, 0);
  CHECK_FALSE(same_plans(none, R"({"threads":1,"shares":[1,4]})", plan));
}

TEST_CASE("shares: they are written as --shares takes them") {
  CHECK(shares_text(Counts{10, 6}) == "10:6");
  CHECK(shares_text(Counts{7}) == "7");
}
