#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "ringtrain/base/text.hpp"
#include "ringtrain/monitor/channel/rendezvous.hpp"
#include "train/preflight/doctor.hpp"

namespace ringtrain::train {
namespace {

using enum Finding::Weight;

constexpr int least_mbit = 1000;

bool is_usable(const host::NetworkInterface& one) { return one.up && !one.addresses.empty(); }

int fastest_mbit(const HostFacts& facts) {
  int fastest = 0;
  for (const host::NetworkInterface& one : facts.interfaces)
    if (is_usable(one) && !one.bridge) fastest = std::max(fastest, one.mbit);
  return fastest;
}

std::string shown(const host::NetworkInterface& one) {
  return fmt::format("{} {}{}", one.name, fmt::join(one.addresses, " "),
                     one.mbit > 0 ? fmt::format(", {} Mbit/s", one.mbit) : "");
}

std::string seen_of(const HostFacts& facts) {
  std::vector<std::string> usable;
  for (const host::NetworkInterface& one : facts.interfaces)
    if (is_usable(one)) usable.push_back(shown(one));
  return usable.empty() ? "no interface but loopback" : fmt::format("{}", fmt::join(usable, "; "));
}

// The name that --interface could have instead of `avoided`.
std::string another_interface(const HostFacts& facts, const std::string& avoided) {
  for (const host::NetworkInterface& one : facts.interfaces)
    if (is_usable(one) && !one.bridge && one.name != avoided) return one.name;
  return "NAME";
}

// An address that several hosts have, as docker0's, leads back to the host itself; containers may
// share a network, and then all of its addresses.
void find_shared_addresses(std::span<const HostFacts> ranks, std::vector<Finding>& findings) {
  struct Owner {
    std::set<int> hosts;
    std::set<std::string> networks;
    std::vector<int> ranks;
    std::string name;
  };
  std::map<std::string, Owner> owners;
  for (const auto& [host, there] : ranks_by_host(ranks))
    for (const host::NetworkInterface& one : facts_of(ranks, there[0]).interfaces)
      for (const std::string& address : one.addresses) {
        Owner& owner = owners[address];
        owner.hosts.insert(host);
        owner.networks.insert(facts_of(ranks, there[0]).network);
        owner.ranks.insert(owner.ranks.end(), there.begin(), there.end());
        owner.name = one.name;
      }
  for (const auto& [address, owner] : owners)
    if (owner.networks.size() > 1)
      findings.push_back(
          {.what = fmt::format("{} hosts have the address {} ({}): MPI may take it for a way from "
                               "one to the other",
                               owner.hosts.size(), address, owner.name),
           .advice = "name the network with --interface " +
                     another_interface(facts_of(ranks, owner.ranks[0]), owner.name),
           .ranks = owner.ranks});
}

void find_slow_interfaces(std::span<const HostFacts> ranks, std::vector<Finding>& findings) {
  int best = 0;
  for (const HostFacts& rank : ranks) best = std::max(best, fastest_mbit(rank));
  for (const auto& [host, there] : ranks_by_host(ranks)) {
    const int mbit = fastest_mbit(facts_of(ranks, there[0]));
    if (mbit == 0) continue;
    if (mbit < least_mbit || 2 * mbit < best)
      findings.push_back(
          {.what = fmt::format("the network here runs at {} Mbit/s{}: all ranks wait for it", mbit,
                               mbit < best ? fmt::format(", elsewhere at {}", best) : ""),
           .advice = "look at cable, switch port and --interface",
           .ranks = there});
  }
}

void find_cut_off_hosts(std::span<const HostFacts> ranks, std::vector<Finding>& findings) {
  for (const auto& [host, there] : ranks_by_host(ranks)) {
    const HostFacts& facts = facts_of(ranks, there[0]);
    if (std::ranges::any_of(facts.interfaces, is_usable)) continue;
    std::vector<std::string> names;
    for (const host::NetworkInterface& one : facts.interfaces) names.push_back(one.name);
    findings.push_back(
        {.what = fmt::format("no network interface is up and has an address{}",
                             names.empty() ? "" : fmt::format(" ({})", fmt::join(names, ", "))),
         .advice = "set one up, or choose others with --interface",
         .ranks = there});
  }
}

// Where the watchdog of rank 0 listens for the others.
void find_rank0_addresses(std::span<const HostFacts> ranks, CheckResult& e) {
  if (ranks.size() < 2) return;
  const auto here =
      std::ranges::count(ranks, ranks[0].network_of_meeting, &HostFacts::network_of_meeting);
  const bool elsewhere = here < static_cast<std::ptrdiff_t>(ranks.size());
  const auto addresses = monitor::listening_addresses(here > 1, elsewhere, ranks[0].addresses);
  e.seen += fmt::format(
      "; rank 0 listens on {}",
      addresses.empty() ? "all interfaces" : fmt::format("{}", fmt::join(addresses, " ")));
  if (addresses.empty())
    e.findings.push_back(
        {.weight = note,
         .what = "rank 0 listens on all interfaces for the other ranks: it knows no address of its "
                 "own for them. Who does not know the job's token is turned away all the same",
         .advice = "name the network with --interface NAME",
         .ranks = {0}});
}

}  // namespace

CheckResult check_network(std::span<const HostFacts> ranks) {
  CheckResult e{"network", seen_of(ranks[0]), {}};
  find_rank0_addresses(ranks, e);
  if (ranks_by_host(ranks).size() < 2) return e;
  find_cut_off_hosts(ranks, e.findings);
  find_shared_addresses(ranks, e.findings);
  find_slow_interfaces(ranks, e.findings);
  return e;
}

CheckResult check_fabric(std::span<const HostFacts> ranks) {
  CheckResult e{"EFA", plural(std::size_t(ranks[0].efa_devices), "device"), {}};
  for (const auto& [host, there] : ranks_by_host(ranks)) {
    const HostFacts& facts = facts_of(ranks, there[0]);
    if (facts.efa_devices == 0 || facts.efa_plugin || !facts.on_gpu) continue;
    e.findings.push_back(
        {.what = fmt::format("{} there, but NCCL's plugin for EFA (aws-ofi-nccl) is not found: "
                             "sums between hosts would take TCP",
                             facts.efa_devices == 1 ? "an EFA device is" : "EFA devices are"),
         .advice = "put its folder (such as /opt/amazon/ofi-nccl/lib) on LD_LIBRARY_PATH",
         .ranks = there});
  }
  return e;
}

}  // namespace ringtrain::train
