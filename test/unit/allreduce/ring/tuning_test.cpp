#include "ringtrain/allreduce/ring/tuning.hpp"

#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::allreduce;

namespace {

constexpr double bucket = 512 << 10;

RingTuning blocks_of(std::size_t floats) {
  return {.largest_segment = floats, .smallest_segment = floats};
}

// What sums of a bucket take on a ring of hosts with such links, where nothing hides the hops.
RingTable table_of(int hosts, double bytes_a_second, double hop_s) {
  const double hops = 2 * (hosts - 1);
  const double alone_s = hops * hop_s + bucket * hops / hosts / bytes_a_second;
  return {hosts, hop_s, bytes_a_second, bucket, {{RingTuning(), alone_s}}};
}

}  // namespace

TEST_CASE("choose_ring: where nothing was measured, what is the default") {
  const RingChoice choice = choose_ring({}, bucket);

  CHECK(choice.plan.at_once == 1);
  CHECK(choice.plan.ring.largest_segment == RingTuning().largest_segment);
  CHECK(choice.seconds == 0);
}

TEST_CASE("choose_ring: as many sums at once as keep the link busy") {
  // 4 hosts: 6 hops; 6.6 ms carried at 1 Gbit/s, 66 ms at 100 Mbit/s.
  CHECK(choose_ring(table_of(4, 119e6, 2e-3), bucket).plan.at_once == 3);    // 12 ms of latency
  CHECK(choose_ring(table_of(4, 11.9e6, 20e-3), bucket).plan.at_once == 3);  // 120 ms
  CHECK(choose_ring(table_of(4, 11.9e6, 50e-3), bucket).plan.at_once == 6);  // 300 ms
  CHECK(choose_ring(table_of(16, 11.9e6, 50e-3), bucket).plan.at_once == 16);
}

TEST_CASE("choose_ring: one sum at a time where a hop takes less than 1 ms") {
  CHECK(choose_ring(table_of(4, 3e9, 0.9e-3), bucket).plan.at_once == 1);
  CHECK(choose_ring(table_of(4, 3e9, 1e-3), bucket).plan.at_once == 16);
}

TEST_CASE("choose_ring: larger buckets need fewer sums at once") {
  const RingTable slow = table_of(4, 11.9e6, 50e-3);

  CHECK(choose_ring(slow, 8 * bucket).plan.at_once == 2);
  CHECK(choose_ring(slow, 128 * bucket).plan.at_once == 1);
  CHECK(choose_ring(slow, bucket / 2).plan.at_once == 10);
}

TEST_CASE("choose_ring: hops that a sum hides itself cost nothing") {
  RingTable table = table_of(4, 119e6, 1e-3);
  CHECK(choose_ring(table, bucket).plan.at_once == 2);

  table.trials.front().seconds = table.carried_s(bucket);
  CHECK(choose_ring(table, bucket).plan.at_once == 1);
}

TEST_CASE("choose_ring: other blocks than the default's only where they are clearly faster") {
  RingTable table = table_of(2, 119e6, 100e-6);
  const double usual_s = table.trials.front().seconds;
  table.trials.push_back({blocks_of(100), 0.97 * usual_s});
  CHECK(choose_ring(table, bucket).plan.ring.largest_segment == RingTuning().largest_segment);
  CHECK(choose_ring(table, bucket).seconds == usual_s);

  table.trials.push_back({blocks_of(200), 0.9 * usual_s});
  CHECK(choose_ring(table, bucket).plan.ring.largest_segment == 200);
  CHECK(choose_ring(table, bucket).seconds == 0.9 * usual_s);
}

TEST_CASE("choose_ring: sums that seem faster than the links") {
  RingTable table = table_of(2, 119e6, 100e-6);
  table.trials.front().seconds /= 2;

  CHECK(choose_ring(table, bucket).plan.at_once == 1);
}
