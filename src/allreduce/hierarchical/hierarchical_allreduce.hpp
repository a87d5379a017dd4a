#pragma once
// Room `allreduce/hierarchical`: the all-reduce of CPUs. Ranks of a host add in shared memory,
// hosts are joined by one ring for each lane over MPI, and several sums may be under way.
// `ring_communicator` puts it together; `tune_ring` times the links it goes by.
//
// Threads: sums between hosts run on a SumThread each, all else on the main thread.
// Collective: everything but topologies.
#include <atomic>
#include <cstdint>
#include <span>
#include <stop_token>
#include <vector>

#include "allreduce/compression/compressed_ring.hpp"
#include "allreduce/ring/sum_kernels.hpp"
#include "ringtrain/allreduce/ring/ring.hpp"

namespace ringtrain::allreduce {

/// A barrier's state, in memory that its ranks share. Zeroed memory is a barrier nobody waits at.
struct BarrierState {
  alignas(64) std::atomic<std::uint32_t> arrived;
  alignas(64) std::atomic<std::uint32_t> generation;  // a futex
  std::atomic<std::uint32_t> sleepers;
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

/// One rank's side of a barrier between the ranks of a host: as fast as shared memory, yet it costs
/// no core while it waits long.
class HostBarrier {
 public:
  /// `crowded`: the host has fewer cores than ranks, so that waiting by spinning keeps the rank
  /// waited for off its core. wait() throws Error once `stop` is requested.
  HostBarrier(BarrierState& state, int ranks, bool crowded, std::stop_token stop);
  /// Waits until all ranks are here. What they wrote before is then visible to all.
  void wait();

 private:
  void sleep(std::uint32_t generation);

  BarrierState& state_;
  const std::uint32_t ranks_;
  const bool crowded_;
  std::stop_token stop_;
};

/// What the ranks of a host share besides gradients; one a rank, of which the barrier of the first
/// is used. Zeroed memory is its beginning.
struct HostDesk {
  BarrierState barrier;
  alignas(64) std::atomic<std::uint64_t> about_to_sum;
};

/// Where a rank is among the ranks of its host, and how many rings join the hosts: `lanes` is the
/// smallest number of ranks that any host has. Each rank below `lanes` sums one part of the data.
struct HostPlace {
  int rank = 0, size = 1, lanes = 1;
};

/// A sum that was started: the numbers of all ranks of this host.
struct PendingSum {
  Replicas replicas;
  std::size_t count = 0;
  SumOptions options = {};
  /// Where this rank's numbers are, if not in `replicas`, which is room for a copy then.
  View elsewhere = {};
};

/// Sums over all ranks: those of a host through their shared memory, hosts through a ring for each
/// lane.
///
/// The order is fixed: the data is cut into `lanes` parts. On each host, part l is summed in rank
/// order from rank l on, wrapping around; those sums go through Ring::allreduce() between the
/// hosts. On one host, and with one rank a host, this is ring_order_sum() of all ranks. Compressed
/// gradients are cut between matrices (see CompressedRing).
class HierarchicalAllreduce {
 public:
  /// `desks`: one of each rank of the host, in its order. `between_hosts` joins rank
  /// `place.rank` of all hosts; null when there is one host or no lane of this rank. `meetings`, if
  /// any, counts how often this rank has come to meet the others. `compressed`: for sums that are,
  /// where there is a ring.
  HierarchicalAllreduce(HostPlace place, std::span<HostDesk* const> desks, bool crowded,
                        Ring* between_hosts, std::stop_token stop,
                        std::atomic<std::uint64_t>* meetings = nullptr,
                        CompressedRing* compressed = nullptr);
  /// Sums in place. Collective. All buffers cost one meeting of the host's ranks together.
  void allreduce(std::span<const PendingSum> sums);

 private:
  void allreduce_lane(const PendingSum& sum);
  void allreduce_between_hosts(const PendingSum& sum, Range slice);
  void allreduce_compressed(const PendingSum& sum);
  void reduce_on_host(const PendingSum& sum, Range slice) const;
  void broadcast_on_host(const PendingSum& sum, Range slice) const;
  void meet(std::span<const PendingSum> sums);
  void wait_for_all();

  HostPlace place_;
  std::vector<HostDesk*> desks_;
  HostBarrier barrier_;
  Ring* between_hosts_;
  std::atomic<std::uint64_t>* meetings_;
  CompressedRing* compressed_;
};

/// Where a rank stands in a job: which group of ranks shares its memory, and its place there.
struct Topology {
  HostPlace place;
  int host = 0, hosts = 1;
};

/// `host_of`: the host of each rank. Hosts of more than `ranks_a_host` ranks are taken as several,
/// unless it is 0.
std::vector<Topology> topologies_of(const std::vector<int>& host_of, int ranks_a_host);
/// That of one rank.
Topology topology_of(int rank, const std::vector<int>& host_of, int ranks_a_host);

/// What the rank at `here` completes of a sum of `count` numbers: all ranks' cover it once.
Range own_part(std::size_t count, const Topology& here);

}  // namespace ringtrain::allreduce
