#include "ringtrain/allreduce/ring/ring.hpp"

#include <cmath>

#include "support/catch.hpp"
#include "support/sanitized.hpp"
#include "support/sum_values.hpp"
#include "support/thread_ring.hpp"

using namespace ringtrain;
using namespace ringtrain::allreduce;

namespace {

// Sums values[rank] in place over thread ranks, `rounds` times over.
void sum_on_threads(std::vector<std::vector<float>>& values, RingTuning tuning = {}, int rounds = 1,
                    Element wire = Element::fp32) {
  const int ranks = static_cast<int>(values.size());
  ThreadRing threads(ranks);
  on_threads(ranks, [&](int rank) {
    ThreadRing::Link link(threads, rank);
    Ring ring(link, tuning);
    for (int round = 0; round < rounds; ++round)
      ring.allreduce(values[static_cast<std::size_t>(rank)], wire);
  });
}

}  // namespace

TEST_CASE("Ring: every rank ends with the exact sum") {
  const int ranks = GENERATE(1, 2, 3, 5, 8);
  const std::size_t n = static_cast<std::size_t>(ranks);
  const std::size_t count =
      GENERATE_COPY(std::size_t{0}, std::size_t{1}, n - 1, n, n + 1, 16 * n - 1, 16 * n + 1,
                    std::size_t{1000}, std::size_t{300'007});
  CAPTURE(ranks, count);
  std::vector<std::vector<float>> values;
  for (int rank = 0; rank < ranks; ++rank) values.push_back(exact_values(count, rank));

  sum_on_threads(values);

  for (const auto& result : values) REQUIRE(result == exact_sums(count, ranks));
}

TEST_CASE("Ring: the bits are those of ring_order_sum, on every rank") {
  const int ranks = GENERATE(range(1, 9));
  const std::size_t count = GENERATE(std::size_t{5}, std::size_t{1001}, std::size_t{150'001});
  CAPTURE(ranks, count);
  std::vector<std::vector<float>> values;
  for (int rank = 0; rank < ranks; ++rank) values.push_back(rough_values(count, rank));
  const auto expected = ring_order_sum(values);

  sum_on_threads(values);

  for (const auto& result : values) REQUIRE(same_bits(result, expected));
}

TEST_CASE("Ring: neither segments nor the window change bits") {
  const std::size_t segment = GENERATE(std::size_t{1}, std::size_t{16}, std::size_t{100});
  const std::size_t window = GENERATE(std::size_t{1}, std::size_t{2}, std::size_t{64});
  const int ranks = GENERATE(2, 3, 5);
  CAPTURE(segment, window, ranks);
  std::vector<std::vector<float>> values;
  for (int rank = 0; rank < ranks; ++rank) values.push_back(rough_values(1234, rank));
  const auto expected = ring_order_sum(values);

  sum_on_threads(values,
                 {.largest_segment = segment, .smallest_segment = segment, .window = window});

  for (const auto& result : values) REQUIRE(same_bits(result, expected));
}

TEST_CASE("Ring: one ring sums again and again") {
  std::vector<std::vector<float>> values(3, std::vector<float>(1000, 1.0f));

  sum_on_threads(values, {}, 5);

  for (const auto& result : values) REQUIRE(result == std::vector<float>(1000, 243.0f));
}

TEST_CASE("Ring: sums that travel in 16 bits are near the sum and the same on every rank") {
  const Element wire = GENERATE(Element::fp16, Element::bf16);
  const int ranks = GENERATE(1, 2, 3, 5, 8);
  const std::size_t count =
      GENERATE(std::size_t{1}, std::size_t{1001}, std::size_t{sanitized ? 40'001 : 150'001});
  const std::size_t window = GENERATE(std::size_t{1}, std::size_t{32});
  CAPTURE(name_of(wire), ranks, count, window);
  std::vector<std::vector<float>> values;
  for (int rank = 0; rank < ranks; ++rank) values.push_back(rough_values(count, rank));
  const auto expected = ring_order_sum(values);
  float largest = 0;
  for (const auto& each : values)
    for (const float value : each) largest = std::max(largest, std::abs(value));

  sum_on_threads(values, {.largest_segment = 512, .smallest_segment = 16, .window = window}, 1,
                 wire);

  // Half a unit of the last place of a running sum, which is at most so large, at each rank.
  const float unit = wire == Element::fp16 ? 0x1p-11f : 0x1p-8f;
  const float most = static_cast<float>(ranks * ranks) * largest * unit;
  for (const auto& result : values) {
    REQUIRE(same_bits(result, values[0]));
    for (std::size_t i = 0; i < count; ++i) REQUIRE(std::abs(result[i] - expected[i]) <= most);
  }
  if (ranks == 1) CHECK(same_bits(values[0], expected));
}

TEST_CASE("Ring: 16 and 32 bits take turns on one link, and what is not finite arrives") {
  std::vector<std::vector<float>> values(3, std::vector<float>(1000, 1.0f));
  values[1][500] = INFINITY;
  values[2][501] = NAN;
  ThreadRing threads(3);
  on_threads(3, [&](int rank) {
    ThreadRing::Link link(threads, rank);
    Ring ring(link);
    for (const Element wire : {Element::bf16, Element::fp32, Element::fp16, Element::bf16})
      ring.allreduce(values[static_cast<std::size_t>(rank)], wire);
  });
  for (const auto& result : values) {
    CHECK(result[0] == 81.0f);
    CHECK(result[500] == INFINITY);
    CHECK(std::isnan(result[501]));
    CHECK(result[999] == 81.0f);
  }
}

TEST_CASE("Ring: gathers a block of every rank") {
  const int ranks = GENERATE(1, 2, 3, 5);
  const std::size_t count = GENERATE(std::size_t{0}, std::size_t{1}, std::size_t{1000});
  CAPTURE(ranks, count);
  const auto block = [&](int rank) { return static_cast<std::ptrdiff_t>(count) * rank; };
  std::vector<float> expected;
  for (int rank = 0; rank < ranks; ++rank)
    std::ranges::copy(rough_values(count, rank), std::back_inserter(expected));
  std::vector<std::vector<float>> blocks(static_cast<std::size_t>(ranks),
                                         std::vector<float>(expected.size()));

  ThreadRing threads(ranks);
  on_threads(ranks, [&](int rank) {
    ThreadRing::Link link(threads, rank);
    auto& mine = blocks[static_cast<std::size_t>(rank)];
    std::ranges::copy(rough_values(count, rank), mine.begin() + block(rank));
    Ring(link).gather(mine);
  });

  for (const auto& result : blocks) CHECK(same_bits(result, expected));
}

TEST_CASE("Ring: sends no more than a window ahead of what it receives") {
  struct SilentLink final : RingLink {
    int rank() const override { return 0; }
    int size() const override { return 3; }
    Ticket receive(std::span<float>) override { return ++received; }
    Ticket send(std::span<const float>) override { return ++sent; }
    void wait_received(Ticket last) override {
      if (last > spoken) throw Error("wait", "silence");
    }
    void wait_sent(Ticket) override {}
    Ticket spoken = 0, received = 0, sent = 0;
  } link;
  link.spoken = GENERATE(0u, 3u);
  Ring ring(link, {.largest_segment = 16, .smallest_segment = 16, .window = 4});
  std::vector<float> values(10'000);

  CHECK_THROWS_WITH(ring.allreduce(values), Catch::Contains("silence"));

  CHECK(link.sent == link.spoken + 4);
  CHECK(link.received == link.spoken + 4);
}

TEST_CASE("ring_order_sum: part p begins at rank p") {
  // 1e8f + 1 is 1e8f, so what is added to what shows.
  const std::vector<std::vector<float>> values{
      std::vector<float>(48, 1e8f), std::vector<float>(48, -1e8f), std::vector<float>(48, 1.0f)};

  const auto sum = ring_order_sum(values);

  CHECK(sum[0] == 1.0f);   // (1e8 - 1e8) + 1
  CHECK(sum[16] == 0.0f);  // (-1e8 + 1) + 1e8
  CHECK(sum[32] == 0.0f);  // (1 + 1e8) - 1e8
}

TEST_CASE("part_of: parts follow each other, cover everything and are cut between lines") {
  const std::size_t count =
      GENERATE(std::size_t{0}, std::size_t{1}, std::size_t{16}, std::size_t{17}, std::size_t{1000});
  const std::size_t n = GENERATE(std::size_t{1}, std::size_t{3}, std::size_t{8});
  CAPTURE(count, n);

  std::size_t next = 0;
  for (std::size_t k = 0; k < n; ++k) {
    const Range part = part_of(count, k, n);
    CHECK(part.first == next);
    CHECK((part.first % 16 == 0 || part.first == count));
    next = part.end();
  }

  CHECK(next == count);
}
