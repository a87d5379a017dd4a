#pragma once
#include <atomic>
#include <cstdint>
#include <span>
#include <stop_token>
#include <vector>

#include "allreduce/compression/compressed_ring.hpp"
#include "allreduce/hierarchical/host_barrier.hpp"
#include "allreduce/ring/sum_kernels.hpp"
#include "ringtrain/allreduce/ring/ring.hpp"

namespace ringtrain::allreduce {

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
/// order from rank l on, wrapping around; those sums go through Ring::sum() between the hosts. On
/// one host, and with one rank a host, this is ring_order_sum() of all ranks. Compressed gradients
/// are cut between matrices (see CompressedRing).
class HostReduce {
 public:
  /// `desks`: one of each rank of the host, in its order. `between_hosts` joins rank
  /// `place.rank` of all hosts; null when there is one host or no lane of this rank. `meetings`, if
  /// any, counts how often this rank has come to meet the others. `compressed`: for sums that are,
  /// where there is a ring.
  HostReduce(HostPlace place, std::span<HostDesk* const> desks, bool crowded, Ring* between_hosts,
             std::stop_token stop, std::atomic<std::uint64_t>* meetings = nullptr,
             CompressedRing* compressed = nullptr);
  /// Sums in place. Collective. All buffers cost one meeting of the host's ranks together.
  void sum(std::span<const PendingSum> sums);

 private:
  void sum_lane(const PendingSum& sum);
  void sum_between_hosts(const PendingSum& sum, Range slice);
  void sum_compressed(const PendingSum& sum);
  void sum_here(const PendingSum& sum, Range slice) const;
  void copy_to_others(const PendingSum& sum, Range slice) const;
  void meet(std::span<const PendingSum> sums);
  void wait_for_all();

  HostPlace place_;
  std::vector<HostDesk*> desks_;
  HostBarrier barrier_;
  Ring* between_hosts_;
  std::atomic<std::uint64_t>* meetings_;
  CompressedRing* compressed_;
};

}  // namespace ringtrain::allreduce
