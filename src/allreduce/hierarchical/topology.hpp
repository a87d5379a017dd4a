#pragma once
#include <vector>

#include "allreduce/hierarchical/host_reduce.hpp"

namespace ringtrain::allreduce {

/// Where a rank stands in a job: which group of ranks shares its memory, and its place there.
struct Topology {
  HostPlace place;
  int host = 0, hosts = 1;
};

/// `host_of`: the host of each rank. Hosts of more than `ranks_a_host` ranks are taken as several,
/// unless it is 0.
Topology topology_of(int rank, const std::vector<int>& host_of, int ranks_a_host);

/// What the rank at `here` completes of a sum of `count` numbers: all ranks' cover it once.
Range own_part(std::size_t count, const Topology& here);

}  // namespace ringtrain::allreduce
