#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "ringtrain/base/text.hpp"
#include "train/preflight/doctor.hpp"

namespace ringtrain::train {
namespace {

using enum Finding::Weight;

void find_crowded_ranks(std::span<const HostFacts> ranks, std::vector<Finding>& findings) {
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const HostFacts& rank = ranks[r];
    const auto cpus = static_cast<int>(rank.cpus.size());
    if (cpus > 0 && rank.threads > cpus)
      findings.push_back(
          {.what = fmt::format("{} compute threads a rank wait for one another on {}", rank.threads,
                               plural(rank.cpus.size(), "cpu")),
           .advice = "leave --threads and OMP_NUM_THREADS to train, or start with "
                     "mpirun --bind-to none",
           .ranks = {static_cast<int>(r)}});
  }
}

// Ranks that the launcher was told to put where others are, or more than there are cpus for.
void find_piled_ranks(std::span<const HostFacts> ranks, std::vector<Finding>& findings) {
  for (const auto& [host, there] : ranks_by_host(ranks)) {
    std::set<int> used;
    int threads = 0;
    for (const int r : there) {
      used.insert(facts_of(ranks, r).cpus.begin(), facts_of(ranks, r).cpus.end());
      threads += facts_of(ranks, r).threads;
    }
    const int idle = facts_of(ranks, there[0]).cpus_of_job - static_cast<int>(used.size());
    if (there.size() < 2 || used.empty() || threads <= static_cast<int>(used.size())) continue;
    const std::string cpus = ranges_text({used.begin(), used.end()});
    if (idle > 0)
      findings.push_back(
          {.what = fmt::format("{} are pinned on top of one another, on cpus {}, while {} idle",
                               plural(there.size(), "rank"), cpus,
                               idle == 1 ? "1 cpu is" : fmt::format("{} cpus are", idle)),
           .advice = "leave the ranks' places to train: mpirun --bind-to none",
           .ranks = there});
    else
      findings.push_back(
          {.weight = note,
           .what = fmt::format("{} with {} share cpus {}", plural(there.size(), "rank"),
                               plural(static_cast<std::size_t>(threads), "thread"), cpus),
           .advice = "start as many ranks as there are cores",
           .ranks = there});
  }
}

}  // namespace

CheckResult check_threads(std::span<const HostFacts> ranks) {
  CheckResult e{
      "threads",
      fmt::format("rank 0 has {} on cpus {}", plural(std::size_t(ranks[0].threads), "thread"),
                  ranges_text(ranks[0].cpus)),
      {}};
  find_crowded_ranks(ranks, e.findings);
  if (e.findings.empty()) find_piled_ranks(ranks, e.findings);
  return e;
}

CheckResult check_memory(std::span<const HostFacts> ranks) {
  if (ranks[0].on_gpu) return {"memory", "of GPUs: see --plan", {}};
  CheckResult e{"memory",
                fmt::format("rank 0 takes {:.2f} GB, its host has {:.1f} GB",
                            double(ranks[0].planned) / giga, double(ranks[0].available) / giga),
                {}};
  for (const auto& [host, there] : ranks_by_host(ranks)) {
    double planned = 0;
    for (const int r : there) planned += double(facts_of(ranks, r).planned);
    const double available = double(facts_of(ranks, there[0]).available);
    if (available == 0 || planned <= available) continue;
    e.findings.push_back(
        {.what = fmt::format("training takes about {:.1f} GB here, and {:.1f} GB are left: the "
                             "kernel may end it",
                             planned / giga, available / giga),
         .advice = "use a smaller --batch (with --accumulate), fewer ranks a host, or more memory",
         .ranks = there});
  }
  return e;
}

// Open MPI's messages and NCCL's buffers; what this program shares does not lie there.
CheckResult check_shared_memory(std::span<const HostFacts> ranks) {
  CheckResult e{"/dev/shm", fmt::format("{:.0f} MB free", double(ranks[0].shm_free) / mega), {}};
  for (const auto& [host, there] : ranks_by_host(ranks)) {
    const HostFacts& facts = facts_of(ranks, there[0]);
    const double needed = double(there.size()) * (facts.on_gpu ? 32e6 : 4.2e6);
    if (there.size() < 2 || double(facts.shm_free) >= needed) continue;
    e.findings.push_back(
        {.what = fmt::format("/dev/shm has {:.0f} MB free, {} {} of it for {}",
                             double(facts.shm_free) / mega, facts.on_gpu ? "NCCL" : "Open MPI",
                             fmt::format("takes about {:.0f} MB", needed / mega),
                             plural(there.size(), "rank")),
         .advice = "start the container with --shm-size=1g, or clear /dev/shm",
         .ranks = there});
  }
  return e;
}

// Sockets to all others, shards of the data, libraries.
CheckResult check_limits(std::span<const HostFacts> ranks) {
  const auto needed = 128 + 4 * std::uint64_t{ranks.size()};
  CheckResult e{"limits", fmt::format("{} open files", ranks[0].files), {}};
  const bool several_hosts = ranks_by_host(ranks).size() > 1;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const HostFacts& rank = ranks[r];
    const std::vector<int> here{static_cast<int>(r)};
    if (rank.files > 0 && rank.files < needed)
      e.findings.push_back(
          {.what = fmt::format("a process may open {} files, {} ranks may take {}", rank.files,
                               ranks.size(), needed),
           .advice = fmt::format("let it open {}: nofile in limits.conf, LimitNOFILE in systemd",
                                 std::max<std::uint64_t>(needed, 4096)),
           .ranks = here});
    if (several_hosts && rank.fast_fabric > 0 && rank.lockable < std::uint64_t(giga))
      e.findings.push_back(
          {.what = fmt::format("only {:.0f} MB of memory may be locked, which InfiniBand and EFA "
                               "need to",
                               double(rank.lockable) / mega),
           .advice = "ulimit -l unlimited (limits.conf: memlock)",
           .ranks = here});
  }
  return e;
}

}  // namespace ringtrain::train
