#include "allreduce/hierarchical/topology.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace ringtrain::allreduce {

Topology topology_of(int rank, const std::vector<int>& host_of, int ranks_a_host) {
  std::map<int, int> seen;                   // ranks so far, by host
  std::map<std::pair<int, int>, int> group;  // number of each (host, group there)
  std::vector<int> sizes;                    // by number
  Topology mine;
  for (int r = 0; r < static_cast<int>(host_of.size()); ++r) {
    const int host = host_of[static_cast<std::size_t>(r)];
    const int there = seen[host]++;
    const auto key = std::pair(host, ranks_a_host > 0 ? there / ranks_a_host : 0);
    const int number = group.emplace(key, static_cast<int>(sizes.size())).first->second;
    sizes.resize(std::max(sizes.size(), static_cast<std::size_t>(number) + 1));
    const int place = sizes[static_cast<std::size_t>(number)]++;
    if (r == rank) mine = {{.rank = place}, number, 0};
  }
  mine.hosts = static_cast<int>(sizes.size());
  mine.place.size = sizes[static_cast<std::size_t>(mine.host)];
  mine.place.lanes = std::ranges::min(sizes);
  return mine;
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
