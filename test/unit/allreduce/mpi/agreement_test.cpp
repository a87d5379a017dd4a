#include "ringtrain/allreduce/mpi/agreement.hpp"

#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::allreduce;

TEST_CASE("agreement: equal ranks have nothing to say") {
  CHECK(disagreement({"a\nbuild\t1\nseed\t7\n", "b\nbuild\t1\nseed\t7\n"}).empty());
  CHECK(disagreement({}).empty());
}

TEST_CASE("agreement: each difference names item, ranks, hosts and both values") {
  const std::string table =
      disagreement({"a\nbuild\t1\nseed\t7\n", "a\nbuild\t1\nseed\t7\n", "b\nbuild\t2\nseed\t8\n"});

  CHECK(table ==
        "\n  build: rank 0 on a has 1, rank 2 on b has 2"
        "\n  seed: rank 0 on a has 7, rank 2 on b has 8");
}
