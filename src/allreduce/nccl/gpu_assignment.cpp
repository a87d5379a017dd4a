#include "ringtrain/allreduce/nccl/gpu_assignment.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "ringtrain/base/error.hpp"

namespace ringtrain::allreduce {
namespace {

using Environment = std::vector<std::pair<std::string, std::string>>;

// NCCL takes ranks with equal host and GPU for a mistake, so each gets a host of its own and speaks
// to the others through sockets. Little of the GPU for each, and none of what wants to own it.
Environment for_shared_gpus(int rank, int host, bool one_host) {
  Environment variables{{"NCCL_HOSTID", fmt::format("host{}-r{}", host, rank)},
                        {"NCCL_NET", "Socket"},
                        {"NCCL_IB_DISABLE", "1"},
                        {"NCCL_PROTO", "Simple"},
                        {"NCCL_MAX_CTAS", "2"},
                        {"NCCL_NVLS_ENABLE", "0"},
                        {"NCCL_MNNVL_ENABLE", "0"},
                        {"NCCL_RAS_ENABLE", "0"}};
  if (one_host) variables.emplace_back("NCCL_SOCKET_IFNAME", "lo");
  return variables;
}

}  // namespace

GpuAssignment assign_gpus(int rank, const std::vector<int>& host_of,
                          const std::vector<std::vector<std::string>>& visible, bool same_bits) {
  expects(host_of.size() == visible.size(), "place_on_gpus: a host and a list for each rank");
  std::map<std::pair<int, std::string>, int> ranks_on;  // by host and GPU
  GpuAssignment mine;
  int most = 0;
  for (std::size_t r = 0; r < visible.size(); ++r) {
    if (visible[r].empty())
      throw Error(Exit::usage, "--allreduce nccl", fmt::format("rank {} sees no GPU", r));
    const auto load = [&](const std::string& gpu) -> int& { return ranks_on[{host_of[r], gpu}]; };
    const auto chosen = std::ranges::min_element(visible[r], {}, load);
    most = std::max(most, ++load(*chosen));
    if (static_cast<int>(r) == rank) mine.device = static_cast<int>(chosen - visible[r].begin());
  }
  mine.shared = most > 1;
  // A ring repeats bit for bit; trees, NVLS and CollNet, which NCCL may choose otherwise, do not.
  // The sockets of shared GPUs have been tried with rings only.
  if (same_bits || mine.shared) mine.environment = {{"NCCL_ALGO", "Ring"}};
  if (!mine.shared) return mine;
  const bool one_host = std::ranges::count(host_of, host_of.front()) == std::ssize(host_of);
  const int host = host_of[static_cast<std::size_t>(rank)];
  std::ranges::move(for_shared_gpus(rank, host, one_host), std::back_inserter(mine.environment));
  mine.warning = fmt::format(
      "WARNING: up to {} ranks share a GPU. The results are right, but sums go through sockets and "
      "take milliseconds: for tests only, do not publish such timings. For speed, start as many "
      "ranks on a host as it has GPUs.",
      most);
  return mine;
}

}  // namespace ringtrain::allreduce
