#include <algorithm>
#include <cmath>
#include <numeric>

#include "allreduce/compression/topk.hpp"
#include "support/catch.hpp"
#include "support/sum_values.hpp"

using namespace ringtrain;
using namespace ringtrain::allreduce;

TEST_CASE("largest: those that a sort would take, and the others stay") {
  const std::size_t count = GENERATE(std::size_t{1}, std::size_t{2}, std::size_t{7},
                                     std::size_t{1000}, std::size_t{4097});
  const double share = GENERATE(0.0, 0.01, 0.5, 1.0);
  const auto wanted = static_cast<std::size_t>(share * double(count));
  CAPTURE(count, wanted);
  auto values = rough_values(count, 3);
  for (std::size_t i = 0; i < count; i += 3) values[i] = -4096;  // many alike, in the middle
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::stable_sort(order, std::greater{}, [&](auto i) { return std::abs(values[i]); });
  order.resize(wanted);
  std::ranges::sort(order);
  auto left = values;

  std::vector<IndexedValue> taken(wanted);
  select_topk(left, taken);

  for (std::size_t k = 0; k < wanted; ++k) {
    CHECK(taken[k].place == order[k]);
    CHECK(taken[k].value == values[order[k]]);
    values[order[k]] = 0;
  }
  CHECK(left == values);
}

TEST_CASE("largest: what is not finite is taken first") {
  std::vector<float> values{1, -INFINITY, 3e38f, NAN, 0};
  std::vector<IndexedValue> taken(2);

  select_topk(values, taken);

  CHECK(taken[0].place == 1);
  CHECK(std::isnan(taken[1].value));
  CHECK(values == std::vector<float>{1, 0, 3e38f, 0, 0});
}
