#include "allreduce/ring/sum_kernels.hpp"

#include <algorithm>
#include <iterator>

#include "ringtrain/allreduce/ring/ring.hpp"
#include "support/catch.hpp"
#include "support/sum_values.hpp"

using namespace ringtrain;
using namespace ringtrain::allreduce;

TEST_CASE("add: adds each element once, at any length") {
  const std::size_t count = GENERATE(std::size_t{0}, std::size_t{1}, std::size_t{15},
                                     std::size_t{16}, std::size_t{17}, std::size_t{1000});
  CAPTURE(count);
  auto y = exact_values(count, 0);
  const auto x = exact_values(count, 1);

  add(y, x);

  CHECK(y == exact_sums(count, 2));
}

TEST_CASE("usable_kernels: all instruction sets give the same bits") {
  constexpr std::size_t count = 5003;
  constexpr Range slice{16, 4001};
  const int ranks = GENERATE(2, 3, 4, 8);
  CAPTURE(ranks);
  const std::vector<Kernels> usable = usable_kernels();
  std::vector<float> values;
  for (int rank = 0; rank < ranks; ++rank)
    std::ranges::copy(rough_values(count, rank), std::back_inserter(values));
  const auto summed = [&](const Kernels& kernels) {
    std::vector<float> memory = values;
    kernels.sum_replicas({memory.data(), count, ranks}, slice, 1, {0, std::size_t(ranks)});
    kernels.add(memory.data(), values.data() + count, count - 1);
    return memory;
  };

  for (const Kernels& kernels : usable) {
    CAPTURE(kernels.name);
    CHECK(same_bits(summed(kernels), summed(usable.back())));
  }
}

TEST_CASE("sum_replicas: sums a slice in the order asked for and leaves the rest alone") {
  const int ranks = GENERATE(2, 3, 4, 8);
  const int start = GENERATE(0, 1);
  const bool everyone = GENERATE(false, true);
  constexpr std::size_t count = 5000, stride = 5008;
  const Range slice{16, 4000};
  CAPTURE(ranks, start, everyone);
  std::vector<float> memory(stride * static_cast<std::size_t>(ranks));
  std::vector<std::vector<float>> values;
  for (int rank = 0; rank < ranks; ++rank) {
    values.push_back(rough_values(count, rank));
    std::ranges::copy(values.back(), &memory[stride * static_cast<std::size_t>(rank)]);
  }

  sum_replicas({memory.data(), stride, ranks}, slice, start,
               everyone ? Range{0, static_cast<std::size_t>(ranks)} : Range{1, 1});

  for (std::size_t i = 0; i < count; ++i) {
    float sum = values[static_cast<std::size_t>(start)][i];
    for (int step = 1; step < ranks; ++step)
      sum += values[static_cast<std::size_t>((start + step) % ranks)][i];
    const bool summed = i >= slice.first && i < slice.end();
    for (std::size_t r = 0; r < values.size(); ++r)
      REQUIRE(memory[r * stride + i] == (summed && (everyone || r == 1) ? sum : values[r][i]));
  }
}
