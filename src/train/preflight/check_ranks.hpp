#pragma once
#include <map>
#include <span>
#include <string>
#include <vector>

#include "train/preflight/facts.hpp"

namespace ringtrain {

/// The ranks of each host, by MpiSession::host_of().
inline std::map<int, std::vector<int>> ranks_by_host(std::span<const Facts> ranks) {
  std::map<int, std::vector<int>> hosts;
  for (std::size_t r = 0; r < ranks.size(); ++r)
    hosts[ranks[r].host_number].push_back(static_cast<int>(r));
  return hosts;
}

inline const Facts& facts_of(std::span<const Facts> ranks, int rank) {
  return ranks[static_cast<std::size_t>(rank)];
}

}  // namespace ringtrain
