#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "ringtrain/allreduce/nccl/gpu_assignment.hpp"
#include "ringtrain/base/text.hpp"
#include "train/preflight/doctor.hpp"

namespace ringtrain::train {
namespace {

using enum Finding::Weight;

// The environment comes before what `train` sets.
std::string algorithms_of(const HostFacts& rank, bool shared) {
  if (!rank.nccl_algorithms.empty()) return rank.nccl_algorithms + ", as NCCL_ALGO says";
  if (rank.same_bits) return "Ring, as --deterministic wants";
  if (shared) return "Ring, as ranks share a GPU";
  return "what it chooses of Ring, Tree, CollNet and NVLS";
}

// As a scheduler that binds GPUs to ranks leaves them.
void find_hidden_gpus(std::span<const HostFacts> ranks, std::vector<Finding>& findings) {
  for (const auto& [host, there] : ranks_by_host(ranks)) {
    std::set<std::vector<std::string>> seen;
    for (const int r : there) seen.insert(facts_of(ranks, r).gpus);
    const bool one_each =
        std::ranges::all_of(seen, [](const auto& gpus) { return gpus.size() == 1; });
    if (!one_each || seen.size() < 2) continue;
    findings.push_back(
        {.what = fmt::format("{} see one GPU each: NCCL takes it that GPUs which a rank does not "
                             "see reach its own directly, and may hang where they do not",
                             plural(there.size(), "rank")),
         .advice = "let each rank see all GPUs of its host: srun --gpu-bind=none, and no "
                   "CUDA_VISIBLE_DEVICES of its own",
         .ranks = there});
  }
}

std::string or_not_set(const std::string& value) { return value.empty() ? "not set" : value; }

}  // namespace

CheckResult check_plan(std::span<const HostFacts> ranks) {
  CheckResult e{"options", "options, model and data fit together", {}};
  for (std::size_t r = 0; r < ranks.size(); ++r)
    if (ranks[r].failure_code != 0)
      e.findings.push_back({.weight = stop,
                            .what = ranks[r].failure,
                            .ranks = {static_cast<int>(r)},
                            .code = ranks[r].failure_code});
  if (!e.findings.empty()) e.seen = "training cannot be planned";
  return e;
}

// Names tell machines apart in reports and locks; the kernel's id does so for sure.
CheckResult check_hosts(std::span<const HostFacts> ranks) {
  std::map<std::string, std::set<std::string>> machines_called;
  std::map<std::string, std::vector<int>> ranks_called;
  std::map<std::string, std::set<int>> hosts_on;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    machines_called[ranks[r].host].insert(ranks[r].machine);
    ranks_called[ranks[r].host].push_back(static_cast<int>(r));
    hosts_on[ranks[r].machine].insert(ranks[r].host_number);
  }
  CheckResult e{"hosts",
                fmt::format("{} on {}", plural(ranks.size(), "rank"),
                            plural(ranks_by_host(ranks).size(), "host")),
                {}};
  for (const auto& [name, machines] : machines_called)
    if (machines.size() > 1)
      e.findings.push_back(
          {.what = fmt::format("{} machines are called {}: reports, logs and the owner of a "
                               "checkpoint directory are told by that name",
                               machines.size(), name),
           .advice = "give each a host name of its own",
           .ranks = ranks_called[name]});
  for (const auto& [machine, hosts] : hosts_on)
    if (hosts.size() > 1 && !machine.empty())
      e.findings.push_back(
          {.weight = note,
           .what = fmt::format("{} containers share one machine: between them sums take the "
                               "network's way, not shared memory's",
                               hosts.size()),
           .advice = "start all ranks of a machine in one container"});
  return e;
}

CheckResult check_gpus(std::span<const HostFacts> ranks) {
  if (!ranks[0].on_gpu) return {"GPUs", "training on CPUs", {}};
  std::vector<int> host_of;
  std::vector<std::vector<std::string>> visible;
  for (const HostFacts& rank : ranks) {
    host_of.push_back(rank.host_number);
    visible.push_back(rank.gpus);
  }
  CheckResult e{"GPUs", fmt::format("rank 0 sees {}", ranks[0].gpus.size()), {}};
  if (const auto blind = std::ranges::find_if(visible, [](const auto& v) { return v.empty(); });
      blind != visible.end()) {
    e.findings.push_back({.what = "no GPU is seen here",
                          .advice = "look at CUDA_VISIBLE_DEVICES and at what the scheduler gave",
                          .ranks = {static_cast<int>(blind - visible.begin())}});
    return e;
  }
  if (ranks.size() == 1) return e;
  const allreduce::GpuAssignment place = allreduce::assign_gpus(0, host_of, visible, false);
  e.seen += "; NCCL sums by " + algorithms_of(ranks[0], place.shared);
  if (place.shared) e.findings.push_back({.what = place.warning});
  find_hidden_gpus(ranks, e.findings);
  const auto other = std::ranges::find_if(ranks, [&](const HostFacts& rank) {
    const bool repeats = rank.same_bits || place.shared;  // then what is not set is Ring
    const auto effective = [&](const HostFacts& one) {
      return one.nccl_algorithms.empty() && repeats ? "Ring" : one.nccl_algorithms;
    };
    return effective(rank) != effective(ranks[0]);
  });
  if (other != ranks.end())
    e.findings.push_back({.what = fmt::format("NCCL_ALGO is {} here and {} on rank 0",
                                              or_not_set(other->nccl_algorithms),
                                              or_not_set(ranks[0].nccl_algorithms)),
                          .advice = "set it alike on all ranks (mpirun -x NCCL_ALGO), or nowhere: "
                                    "NCCL may hang otherwise",
                          .ranks = {static_cast<int>(other - ranks.begin())}});
  return e;
}

CheckResult check_mpi(std::span<const HostFacts> ranks) {
  if (ranks[0].threads_share_mpi) return {"MPI", "several threads may use it", {}};
  return {"MPI",
          "one thread at a time may use it",
          {{.weight = note,
            .what = "this MPI lets one thread at a time in: with --sync-batchnorm, sums wait for "
                    "the backward pass",
            .advice = "use an MPI built with MPI_THREAD_MULTIPLE"}}};
}

CheckResult check_data(std::span<const HostFacts> ranks) {
  CheckResult e{"data", ranks[0].data.empty() ? "not opened" : ranks[0].data, {}};
  for (std::size_t r = 0; r < ranks.size(); ++r)
    for (const std::string& why : ranks[r].unreadable)
      e.findings.push_back(
          {.what = "the first or last sample cannot be read: " + why,
           .advice = "repair or remove it; above 0.1 % of such samples training ends",
           .ranks = {static_cast<int>(r)}});
  return e;
}

// A new one is complete before the oldest goes. Those that are there have their room. Too little
// for two ends the start of training.
CheckResult check_checkpoints(std::span<const HostFacts> ranks) {
  const HostFacts& first = ranks[0];
  if (first.checkpoint_dir.empty()) return {"checkpoints", "none are written", {}};
  const double room = double(first.checkpoint_room), each = double(first.checkpoint);
  CheckResult e{"checkpoints",
                fmt::format("{}: {}, {:.3f} GB each", first.checkpoint_dir,
                            first.checkpoint_room == unknown_room
                                ? "free room unknown"
                                : fmt::format("{:.1f} GB free", room / giga),
                            each / giga),
                {}};
  const int more = std::max(1, first.keep + 1 - first.checkpoints_there);
  if (room < each * more)
    e.findings.push_back(
        {.what = fmt::format("{} has room for {:.0f} more checkpoints, --keep {} needs {}",
                             first.checkpoint_dir, std::floor(each > 0 ? room / each : 0),
                             first.keep, more),
         .advice = "make room, or keep fewer",
         .ranks = {0}});
  return e;
}

}  // namespace ringtrain::train
