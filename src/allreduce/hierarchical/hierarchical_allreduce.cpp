#include "allreduce/hierarchical/hierarchical_allreduce.hpp"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <ctime>
#include <map>
#include <utility>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/hash.hpp"

namespace ringtrain::allreduce {
namespace {

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Not FUTEX_PRIVATE: the waiters are other processes.
void futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value,
           const timespec* timeout = nullptr) {
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), operation, value, timeout, nullptr,
            0);
}

}  // namespace

HostBarrier::HostBarrier(BarrierState& state, int ranks, bool crowded, std::stop_token stop)
    : state_(state),
      ranks_(static_cast<std::uint32_t>(ranks)),
      crowded_(crowded),
      stop_(std::move(stop)) {}

void HostBarrier::wait() {
  const std::uint32_t now = state_.generation.load(std::memory_order_acquire);
  if (state_.arrived.fetch_add(1, std::memory_order_acq_rel) == ranks_ - 1) {
    state_.arrived.store(0, std::memory_order_relaxed);
    state_.generation.store(now + 1, std::memory_order_seq_cst);
    if (state_.sleepers.load(std::memory_order_seq_cst) > 0)
      futex(state_.generation, FUTEX_WAKE, INT_MAX);
    return;
  }
  constexpr int spins = 4000, yields = 50;
  for (int i = 0; i < (crowded_ ? 0 : spins); ++i) {
    if (state_.generation.load(std::memory_order_acquire) != now) return;
    relax();
  }
  for (int i = 0; i < yields; ++i) {
    if (state_.generation.load(std::memory_order_acquire) != now) return;
    ::sched_yield();
  }
  sleep(now);
}

void HostBarrier::sleep(std::uint32_t generation) {
  constexpr timespec look_up{0, 100'000'000};  // for a stop request, which wakes nobody
  state_.sleepers.fetch_add(1, std::memory_order_seq_cst);
  while (state_.generation.load(std::memory_order_seq_cst) == generation) {
    if (stop_.stop_requested()) throw Error("wait for the ranks of this host", "given up");
    futex(state_.generation, FUTEX_WAIT, generation, &look_up);
  }
  state_.sleepers.fetch_sub(1, std::memory_order_relaxed);
}

HierarchicalAllreduce::HierarchicalAllreduce(HostPlace place, std::span<HostDesk* const> desks,
                                             bool crowded, Ring* between_hosts,
                                             std::stop_token stop,
                                             std::atomic<std::uint64_t>* meetings,
                                             CompressedRing* compressed)
    : place_(place),
      desks_(desks.begin(), desks.end()),
      barrier_(desks.front()->barrier, place.size, crowded, std::move(stop)),
      between_hosts_(between_hosts),
      meetings_(meetings),
      compressed_(compressed) {
  expects(place.lanes >= 1 && place.lanes <= place.size,
          "HierarchicalAllreduce: a rank for every lane");
}

void HierarchicalAllreduce::allreduce(std::span<const PendingSum> sums) {
  if (place_.size > 1) meet(sums);
  if (place_.rank < place_.lanes)
    for (const PendingSum& each : sums) allreduce_lane(each);
  if (place_.size > 1) wait_for_all();
}

void HierarchicalAllreduce::wait_for_all() {
  if (meetings_ != nullptr) ++*meetings_;
  barrier_.wait();
}

// Waits until every rank's gradients are there, and makes sure that all mean the same ones: ranks
// that have lost step with each other would otherwise train on nonsense.
void HierarchicalAllreduce::meet(std::span<const PendingSum> sums) {
  std::uint64_t about_to_sum = sums.size();
  for (const PendingSum& each : sums)
    about_to_sum = hash_bytes(std::as_bytes(std::span(&each.count, 1)), about_to_sum);
  desks_[static_cast<std::size_t>(place_.rank)]->about_to_sum.store(about_to_sum,
                                                                    std::memory_order_relaxed);
  wait_for_all();
  for (const HostDesk* desk : desks_)
    if (desk->about_to_sum.load(std::memory_order_relaxed) != about_to_sum)
      throw Error("sum over the ranks of this host", "ranks sum buffers of different sizes");
}

void HierarchicalAllreduce::allreduce_lane(const PendingSum& sum) {
  if (sum.options.compressed && compressed_ != nullptr) return allreduce_compressed(sum);
  const auto lane = static_cast<std::size_t>(place_.rank);
  const Range slice = part_of(sum.count, lane, static_cast<std::size_t>(place_.lanes));
  if (between_hosts_ != nullptr || sum.options.hook != nullptr)
    return allreduce_between_hosts(sum, slice);
  sum_replicas(sum.replicas, slice, place_.rank, {0, static_cast<std::size_t>(place_.size)});
}

// Also on one host, where there is a hook.
void HierarchicalAllreduce::allreduce_between_hosts(const PendingSum& sum, Range slice) {
  reduce_on_host(sum, slice);
  const std::span<float> mine{sum.replicas.of(place_.rank) + slice.first, slice.count};
  if (between_hosts_ != nullptr)
    between_hosts_->allreduce(mine, sum.options.wire, sum.options.hook);
  else if (!mine.empty())
    (*sum.options.hook)({mine.data(), mine.size()});
  broadcast_on_host(sum, slice);
}

void HierarchicalAllreduce::allreduce_compressed(const PendingSum& sum) {
  const Range gradients{sum.options.first, sum.count};
  const std::vector<Range> slices = compressed_->slices(gradients);
  for (const Range& slice : slices) reduce_on_host(sum, slice);
  compressed_->allreduce(gradients, sum.replicas.of(place_.rank));
  for (const Range& slice : slices) broadcast_on_host(sum, slice);
}

// Over the ranks of this host, into this rank's copy.
void HierarchicalAllreduce::reduce_on_host(const PendingSum& sum, Range slice) const {
  sum_replicas(sum.replicas, slice, place_.rank, {static_cast<std::size_t>(place_.rank), 1});
}

void HierarchicalAllreduce::broadcast_on_host(const PendingSum& sum, Range slice) const {
  const float* const mine = sum.replicas.of(place_.rank) + slice.first;
  for (int rank = 0; rank < place_.size; ++rank)
    if (rank != place_.rank) std::copy_n(mine, slice.count, sum.replicas.of(rank) + slice.first);
}

std::vector<Topology> topologies_of(const std::vector<int>& host_of, int ranks_a_host) {
  std::map<int, int> seen;                   // ranks so far, by host
  std::map<std::pair<int, int>, int> group;  // number of each (host, group there)
  std::vector<int> sizes;                    // by number
  std::vector<Topology> all;
  for (const int host : host_of) {
    const int there = seen[host]++;
    const auto key = std::pair(host, ranks_a_host > 0 ? there / ranks_a_host : 0);
    const int number = group.emplace(key, static_cast<int>(sizes.size())).first->second;
    sizes.resize(std::max(sizes.size(), static_cast<std::size_t>(number) + 1));
    all.push_back({{.rank = sizes[static_cast<std::size_t>(number)]++}, number, 0});
  }
  const int lanes = sizes.empty() ? 0 : std::ranges::min(sizes);
  for (Topology& one : all) {
    one.hosts = static_cast<int>(sizes.size());
    one.place.size = sizes[static_cast<std::size_t>(one.host)];
    one.place.lanes = lanes;
  }
  return all;
}

Topology topology_of(int rank, const std::vector<int>& host_of, int ranks_a_host) {
  return topologies_of(host_of, ranks_a_host).at(static_cast<std::size_t>(rank));
}

Range own_part(std::size_t count, const Topology& here) {
  const auto [rank, size, lanes] = here.place;
  if (rank >= lanes) return {count, 0};
  const Range lane =
      part_of(count, static_cast<std::size_t>(rank), static_cast<std::size_t>(lanes));
  const Range part = Ring::own_part(lane.count, here.host, here.hosts);
  return {lane.first + part.first, part.count};
}

}  // namespace ringtrain::allreduce
