#pragma once
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "train/preflight/facts.hpp"

namespace ringtrain {

/// Something that a user should know before training.
struct Finding {
  enum class Weight {
    note,     ///< may be meant so: told by --doctor only
    warning,  ///< costs speed or safety: every run tells it
    stop,     ///< training would not begin
  };
  Weight weight = Weight::warning;
  std::string what = {};        ///< and why
  std::string advice = {};      ///< what to do; empty: `what` says so
  std::vector<int> ranks = {};  ///< where, ascending; empty: the whole job
  int code = 0;                 ///< that a stop ends with
};

/// What one check saw of all ranks.
struct Examined {
  std::string_view name;
  std::string seen;  ///< a few words, for --doctor
  std::vector<Finding> findings;
};

/// A pure function of what all ranks found, in order of rank; of one at least.
using Check = Examined (*)(std::span<const Facts> ranks);

Examined check_plan(std::span<const Facts> ranks);
Examined check_hosts(std::span<const Facts> ranks);
Examined check_clocks(std::span<const Facts> ranks);
Examined check_threads(std::span<const Facts> ranks);
Examined check_processors(std::span<const Facts> ranks);
Examined check_gpus(std::span<const Facts> ranks);
Examined check_mpi(std::span<const Facts> ranks);
Examined check_network(std::span<const Facts> ranks);
Examined check_fabric(std::span<const Facts> ranks);
Examined check_memory(std::span<const Facts> ranks);
Examined check_shared_memory(std::span<const Facts> ranks);
Examined check_limits(std::span<const Facts> ranks);
Examined check_data(std::span<const Facts> ranks);
Examined check_checkpoints(std::span<const Facts> ranks);

/// All of them. Findings that are alike are one, of several ranks.
std::vector<Examined> examine(std::span<const Facts> ranks);

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
