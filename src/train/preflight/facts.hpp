#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "ringtrain/allreduce/mpi/session.hpp"
#include "ringtrain/config/options.hpp"
#include "ringtrain/host/network_interfaces.hpp"
#include "ringtrain/host/threads.hpp"
#include "train/plan/run_plan.hpp"

namespace ringtrain::train {

/// Where a file system does not say how much room it has.
inline constexpr auto unknown_room = ~std::uint64_t{0};

/// What one rank finds before training, of itself and of its host. Sizes are in bytes; where
/// nothing is said, 0 and empty mean that it is not known.
struct HostFacts {
  std::string host, machine;  ///< its name, and what no two machines share
  int host_number = 0;        ///< MpiSession::host_of()

  int threads = 1;
  std::vector<int> cpus;  ///< that the rank's threads may run on
  int cpus_of_job = 0;    ///< that all ranks of the host together may have

  bool on_gpu = false;
  std::vector<std::string> gpus;  ///< PCI bus ids of those it sees
  bool same_bits = false;         ///< --deterministic
  std::string nccl_algorithms;    ///< what NCCL_ALGO is here

  std::string network;                             ///< what no two network namespaces share
  std::vector<host::NetworkInterface> interfaces;  ///< those of --interface, or all
  std::string network_of_meeting = {};             ///< network_name()
  std::vector<std::string> addresses = {};         ///< job_addresses()
  int efa_devices = 0;
  bool efa_plugin = false;  ///< NCCL would find its way to them
  int fast_fabric = 0;      ///< devices of InfiniBand's kind, EFA's among them
  bool threads_share_mpi = true;

  std::uint64_t planned = 0;    ///< memory this rank will take on CPUs
  std::uint64_t available = 0;  ///< on the host, within its control groups
  std::uint64_t shm_free = 0;   ///< in /dev/shm
  std::uint64_t files = 0;      ///< that may be open
  std::uint64_t lockable = 0;   ///< memory that may be locked

  std::string data;  ///< Dataset::description()
  std::vector<std::string> unreadable;
  std::string checkpoint_dir;                         ///< rank 0's; what follows, too
  std::uint64_t checkpoint = 0, checkpoint_room = 0;  ///< bytes; the room may be unknown_room
  int checkpoints_there = 0, keep = 0;

  std::string failure;   ///< why this rank cannot make a plan of the run
  int failure_code = 0;  ///< an Exit; 0: it can
};

std::string to_text(const HostFacts& facts);
/// Reads what to_text() wrote.
HostFacts facts_from_text(const std::string& text);

/// What the system tells of this rank and its host. `options`: with the device chosen. Collective.
HostFacts collect_host_facts(const config::Options& options, const host::ThreadPlan& threads,
                             const allreduce::MpiSession& session);
/// Adds what the plan is and needs; reads the first and the last sample of the data, on one rank a
/// host. `progress` hears of it.
void add_plan(HostFacts& facts, const RunPlan& plan, const allreduce::MpiSession& session,
              WorkProgress& progress);

}  // namespace ringtrain::train
