#include <array>

#include "ringtrain/allreduce/communicator/communicator.hpp"
#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::allreduce;

TEST_CASE("SoloCommunicator: sums are the numbers, of whatever type on the wire") {
  std::array<float, 2> values{1, 2.3456789f};
  const auto alone = make_solo_communicator();

  alone->start_allreduce({values.data(), 2});
  alone->start_allreduce({values.data(), 2}, {.wire = Element::bf16, .compressed = true});
  alone->finish();

  CHECK(values == std::array<float, 2>{1, 2.3456789f});
  CHECK(alone->size() == 1);
  CHECK_FALSE(alone->overlaps());
  CHECK(alone->compression_state() == nullptr);
}

TEST_CASE("SoloCommunicator: refuses to complete sums in parts") {
  float value = 1;
  const std::size_t count = 1;
  const ReduceHook hook = [](View) {};
  const auto alone = make_solo_communicator();

  CHECK_THROWS_WITH(alone->start_allreduce({&value, 1}, {.hook = &hook}),
                    Catch::Contains("only the ring"));
  CHECK_THROWS_WITH(alone->own_parts(std::span(&count, 1), 0), Catch::Contains("only the ring"));
}
