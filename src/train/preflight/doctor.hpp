#pragma once
// Room `train/preflight`: what can be known before training. facts.hpp collects what each host has,
// the checks judge it on rank 0, and memory_report.hpp plans memory for a machine here or
// described.
//
// Thread: main. Nothing here changes the training that follows.
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ringtrain/allreduce/mpi/session.hpp"
#include "train/preflight/facts.hpp"

namespace ringtrain::train {

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
struct CheckResult {
  std::string_view name;
  std::string seen;  ///< a few words, for --doctor
  std::vector<Finding> findings;
};

/// A pure function of what all ranks found, in order of rank; of one at least.
using Check = CheckResult (*)(std::span<const HostFacts> ranks);

CheckResult check_plan(std::span<const HostFacts> ranks);
CheckResult check_hosts(std::span<const HostFacts> ranks);
CheckResult check_threads(std::span<const HostFacts> ranks);
CheckResult check_gpus(std::span<const HostFacts> ranks);
CheckResult check_mpi(std::span<const HostFacts> ranks);
CheckResult check_network(std::span<const HostFacts> ranks);
CheckResult check_fabric(std::span<const HostFacts> ranks);
CheckResult check_memory(std::span<const HostFacts> ranks);
CheckResult check_shared_memory(std::span<const HostFacts> ranks);
CheckResult check_limits(std::span<const HostFacts> ranks);
CheckResult check_data(std::span<const HostFacts> ranks);
CheckResult check_checkpoints(std::span<const HostFacts> ranks);

/// All of them. Findings that are alike are one, of several ranks.
std::vector<CheckResult> examine(std::span<const HostFacts> ranks);

/// The ranks of each host, by MpiSession::host_of().
inline std::map<int, std::vector<int>> ranks_by_host(std::span<const HostFacts> ranks) {
  std::map<int, std::vector<int>> hosts;
  for (std::size_t r = 0; r < ranks.size(); ++r)
    hosts[ranks[r].host_number].push_back(static_cast<int>(r));
  return hosts;
}

inline const HostFacts& facts_of(std::span<const HostFacts> ranks, int rank) {
  return ranks[static_cast<std::size_t>(rank)];
}

/// What the checks made of all ranks' facts.
struct Diagnosis {
  std::string table = {};  ///< of all checks, for --doctor
  /// For every run: what, where and what to do, one a line.
  std::vector<std::string> warnings = {};
  std::string stop = {};  ///< why training would not begin; empty: it would
  int code = 0;           ///< that it would end with
};

/// `ranks`: the facts of every rank, one at least.
Diagnosis diagnose(std::span<const HostFacts> ranks);
/// The same of the facts that all ranks bring. On rank 0; the others learn `stop` and `code` only.
/// Collective.
Diagnosis diagnose(const HostFacts& mine, const allreduce::MpiSession& session);

}  // namespace ringtrain::train
