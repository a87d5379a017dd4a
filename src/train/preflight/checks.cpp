#include "train/preflight/checks.hpp"

#include <algorithm>
#include <array>

namespace ringtrain::train {
namespace {

constexpr std::array<Check, 14> checks = {
    check_plan,          check_hosts,  check_clocks,  check_threads,    check_processors,
    check_gpus,          check_mpi,    check_network, check_fabric,     check_memory,
    check_shared_memory, check_limits, check_data,    check_checkpoints};

// Ranks come in order, so theirs stay ascending.
std::vector<Finding> merged(const std::vector<Finding>& findings) {
  std::vector<Finding> all;
  for (const Finding& finding : findings) {
    const auto same = std::ranges::find_if(all, [&](const Finding& other) {
      return other.what == finding.what && other.advice == finding.advice;
    });
    if (same == all.end())
      all.push_back(finding);
    else
      same->ranks.insert(same->ranks.end(), finding.ranks.begin(), finding.ranks.end());
  }
  for (Finding& finding : all) std::ranges::sort(finding.ranks);
  return all;
}

}  // namespace

std::vector<CheckResult> examine(std::span<const HostFacts> ranks) {
  std::vector<CheckResult> all;
  for (const Check check : checks) {
    CheckResult& one = all.emplace_back(check(ranks));
    one.findings = merged(one.findings);
  }
  return all;
}

}  // namespace ringtrain::train
