#include "train/state/replica_check.hpp"

#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::train;

namespace {

const std::vector<std::string> rank_names{"weights/a", "weights/b", "ema/a"};

}  // namespace

TEST_CASE("rank check: equal ranks have nothing to say") {
  CHECK(diverged_ranks(rank_names, {{"x", {"1", "2", "3"}}, {"y", {"1", "2", "3"}}}).empty());
  CHECK(diverged_ranks(rank_names, {}).empty());
}

TEST_CASE("rank check: the rank that differs from most is named, also when it is the first") {
  CHECK(diverged_ranks(rank_names,
                       {{"x", {"9", "2", "3"}}, {"y", {"1", "2", "3"}}, {"z", {"1", "2", "3"}}}) ==
        "\n  rank 0 on x has other values than rank 1 on y in weights/a");
  CHECK(diverged_ranks(rank_names,
                       {{"x", {"1", "2", "3"}}, {"y", {"1", "2", "3"}}, {"z", {"1", "8", "9"}}}) ==
        "\n  rank 2 on z has other values than rank 0 on x in weights/b and 1 more of 3 tensors");
}

TEST_CASE("rank check: of two ranks the second is said to differ, as nobody knows which is right") {
  CHECK(diverged_ranks(rank_names, {{"x", {"1", "2", "3"}}, {"y", {"1", "2", "4"}}}) ==
        "\n  rank 1 on y has other values than rank 0 on x in ema/a");
}
