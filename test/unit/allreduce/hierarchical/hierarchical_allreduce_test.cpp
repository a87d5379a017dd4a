#include "allreduce/hierarchical/hierarchical_allreduce.hpp"

#include <memory>
#include <optional>

#include "support/catch.hpp"
#include "support/sum_values.hpp"
#include "support/thread_ring.hpp"

using namespace ringtrain;
using namespace ringtrain::allreduce;

namespace {

// Hosts of the given numbers of ranks, all of them threads of this process.
struct ThreadHosts {
  explicit ThreadHosts(const std::vector<int>& ranks_of_hosts) {
    for (std::size_t host = 0; host < ranks_of_hosts.size(); ++host)
      host_of.insert(host_of.end(), static_cast<std::size_t>(ranks_of_hosts[host]),
                     static_cast<int>(host));
    desks = std::vector<HostDesk>(host_of.size());
    const auto lanes = static_cast<std::size_t>(std::ranges::min(ranks_of_hosts));
    for (std::size_t lane = 0; lane < lanes; ++lane)
      rings.emplace_back(static_cast<int>(ranks_of_hosts.size()));
  }

  // Sums values[rank] in place over all ranks, cut into `buffers`; through hooks[rank], if any.
  void sum(std::vector<std::vector<float>>& values, std::size_t buffers,
           const CompressedGradients& compressed = {}, const std::vector<ReduceHook>& hooks = {}) {
    const std::size_t count = values.front().size(), stride = count + 16;
    std::vector<float> memory(values.size() * stride);
    for (std::size_t r = 0; r < values.size(); ++r)
      std::ranges::copy(values[r], &memory[r * stride]);
    on_threads(static_cast<int>(values.size()), [&](int rank) {
      const Topology here = topology_of(rank, host_of, 0);
      const auto first = static_cast<std::size_t>(rank - here.place.rank);
      std::vector<HostDesk*> local;
      for (int r = 0; r < here.place.size; ++r)
        local.push_back(&desks[first + static_cast<std::size_t>(r)]);
      std::unique_ptr<ThreadRing::Link> link;
      std::unique_ptr<Ring> ring;
      if (here.hosts > 1 && here.place.rank < here.place.lanes) {
        link = std::make_unique<ThreadRing::Link>(rings[static_cast<std::size_t>(here.place.rank)],
                                                  here.host);
        ring = std::make_unique<Ring>(*link);
      }
      std::optional<CompressedRing> lane;
      if (ring && compressed.how)
        lane.emplace(compressed, here.place.rank, here.place.lanes, *ring);
      HierarchicalAllreduce all_ranks(here.place, local, true, ring.get(), {}, nullptr,
                                      lane ? &*lane : nullptr);
      std::vector<PendingSum> sums;
      for (std::size_t k = 0; k < buffers; ++k) {
        const Range part = part_of(count, k, buffers);
        sums.push_back(
            {{&memory[first * stride + part.first], static_cast<std::ptrdiff_t>(stride),
              here.place.size},
             part.count,
             {.compressed = bool(compressed.how),
              .first = part.first,
              .hook = hooks.empty() ? nullptr : &hooks[static_cast<std::size_t>(rank)]}});
      }
      all_ranks.allreduce(sums);
      // At once: what others have not written by now comes too late.
      const auto r = static_cast<std::size_t>(rank);
      std::copy_n(&memory[r * stride], count, values[r].begin());
    });
  }

  std::vector<int> host_of;
  std::vector<HostDesk> desks;
  std::deque<ThreadRing> rings;
};

}  // namespace

TEST_CASE("HierarchicalAllreduce: every rank of every host ends with the exact sum") {
  const auto hosts = GENERATE(std::vector<int>{2}, std::vector<int>{3}, std::vector<int>{8},
                              std::vector<int>{1, 1, 1}, std::vector<int>{2, 2},
                              std::vector<int>{3, 1}, std::vector<int>{2, 4, 3});
  const std::size_t count = GENERATE(std::size_t{1}, std::size_t{17}, std::size_t{50'003});
  const std::size_t buffers = GENERATE(std::size_t{1}, std::size_t{3});
  CAPTURE(hosts, count, buffers);
  ThreadHosts threads(hosts);
  const int ranks = static_cast<int>(threads.host_of.size());
  std::vector<std::vector<float>> values;
  for (int rank = 0; rank < ranks; ++rank) values.push_back(exact_values(count, rank));

  threads.sum(values, buffers);

  for (const auto& result : values) REQUIRE(result == exact_sums(count, ranks));
}

TEST_CASE("HierarchicalAllreduce: every rank gets what the rank that completes a sum makes of it") {
  const auto hosts =
      GENERATE(std::vector<int>{2}, std::vector<int>{3}, std::vector<int>{1, 1, 1},
               std::vector<int>{2, 2}, std::vector<int>{3, 1}, std::vector<int>{2, 4, 3});
  const std::size_t count = GENERATE(std::size_t{1}, std::size_t{17}, std::size_t{50'003});
  CAPTURE(hosts, count);
  ThreadHosts threads(hosts);
  const int ranks = static_cast<int>(threads.host_of.size());
  std::vector<std::vector<float>> values;
  std::vector<ReduceHook> hooks;
  std::vector<float> expected = exact_sums(count, ranks);
  std::vector<int> owners(count);
  for (int rank = 0; rank < ranks; ++rank) {
    values.push_back(exact_values(count, rank));
    const auto made = static_cast<float>(rank);
    hooks.emplace_back([made](View part) {
      for (float& x : part.host()) x = 2 * x + made;
    });
    const Range own = own_part(count, topology_of(rank, threads.host_of, 0));
    for (std::size_t i = own.first; i < own.end(); ++i) {
      ++owners[i];
      expected[i] = 2 * expected[i] + made;
    }
  }

  threads.sum(values, 1, {}, hooks);

  CHECK(std::ranges::all_of(owners, [](int times) { return times == 1; }));
  for (const auto& result : values) REQUIRE(result == expected);
}

TEST_CASE("HierarchicalAllreduce: ranks of one host give the bits of a ring of hosts") {
  const int ranks = GENERATE(2, 3, 4, 5, 8);
  const std::vector<int> hosts =
      GENERATE(true, false) ? std::vector<int>{ranks} : std::vector<int>(ranks, 1);
  CAPTURE(hosts);
  ThreadHosts threads(hosts);
  std::vector<std::vector<float>> values;
  for (int rank = 0; rank < ranks; ++rank) values.push_back(rough_values(10'001, rank));
  const auto expected = ring_order_sum(values);

  threads.sum(values, 1);

  for (const auto& result : values) REQUIRE(same_bits(result, expected));
}

TEST_CASE("HierarchicalAllreduce: several ranks on several hosts end with equal bits, every time") {
  const auto hosts =
      GENERATE(std::vector<int>{2, 2}, std::vector<int>{3, 1}, std::vector<int>{2, 4, 3});
  CAPTURE(hosts);
  const auto sum = [&] {
    ThreadHosts threads(hosts);
    std::vector<std::vector<float>> values;
    for (std::size_t rank = 0; rank < threads.host_of.size(); ++rank)
      values.push_back(rough_values(10'001, static_cast<int>(rank)));
    threads.sum(values, 2);
    return values;
  };

  const auto once = sum(), again = sum();

  for (const auto& result : once) REQUIRE(same_bits(result, once.front()));
  REQUIRE(same_bits(again.front(), once.front()));
}

TEST_CASE(
    "HierarchicalAllreduce: what travels compressed is first summed on each host, and then all "
    "have it") {
  const auto hosts = GENERATE(std::vector<int>{1, 1}, std::vector<int>{2, 2},
                              std::vector<int>{3, 1}, std::vector<int>{2, 4, 3});
  const double ratio = GENERATE(1.0, 0.1);
  CAPTURE(hosts, ratio);
  constexpr std::size_t count = 960, buffers = 3;
  CompressedGradients compressed{{.kind = Compression::Kind::topk, .ratio = ratio}, {}};
  for (std::size_t first = 0; first < count; first += 80)
    compressed.matrices.push_back(
        {first, first % 240 == 0 ? 1u : 8u, first % 240 == 0 ? 80u : 10u});
  ThreadHosts threads(hosts);
  const int ranks = static_cast<int>(threads.host_of.size());
  std::vector<std::vector<float>> values;
  for (int rank = 0; rank < ranks; ++rank) values.push_back(exact_values(count, rank));

  threads.sum(values, buffers, compressed);

  const auto exact = exact_sums(count, ranks);
  std::size_t arrived = 0;
  for (std::size_t i = 0; i < count; ++i) arrived += values[0][i] == exact[i] && exact[i] != 0;
  CHECK(arrived == (ratio == 1 ? count - 1 : 4 * 80 + 8 * 8));
  for (const auto& result : values) REQUIRE(same_bits(result, values.front()));
}

TEST_CASE("HierarchicalAllreduce: ranks that have lost step are told, not summed") {
  std::vector<HostDesk> desks(2);
  std::vector<float> memory(200);

  const auto sum = [&](int rank) {
    const std::vector<HostDesk*> both{&desks[0], &desks[1]};
    HierarchicalAllreduce all_ranks({rank, 2, 2}, both, true, nullptr, {});
    const PendingSum mine{{memory.data(), 100, 2}, rank == 0 ? 100u : 99u};
    all_ranks.allreduce(std::span(&mine, 1));
  };

  CHECK_THROWS_WITH(on_threads(2, sum), Catch::Contains("different sizes"));
}

TEST_CASE("HierarchicalAllreduce: says how often a rank has come to meet the others") {
  std::vector<HostDesk> desks(2);
  std::vector<float> memory(200);
  std::array<std::atomic<std::uint64_t>, 2> meetings{};

  on_threads(2, [&](int rank) {
    const std::vector<HostDesk*> both{&desks[0], &desks[1]};
    auto& mine = meetings[static_cast<std::size_t>(rank)];
    HierarchicalAllreduce all_ranks({rank, 2, 2}, both, true, nullptr, {}, &mine);
    const PendingSum sum{{memory.data(), 100, 2}, 100u};
    all_ranks.allreduce(std::span(&sum, 1));
    all_ranks.allreduce(std::span(&sum, 1));
  });

  CHECK(meetings[0] == 4);  // before and after each sum
  CHECK(meetings[1] == 4);
}
