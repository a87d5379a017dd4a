#pragma once
// Room `monitor/channel`: TCP connections between rank 0 and the others that need neither MPI nor
// NCCL. A Rendezvous says where rank 0 listens; RankListener lets in who proves to be a rank of
// this job; messages have a fixed form and a sum that finds damage.
//
// Threads: one for each connection's context; nothing waits for a peer without a limit.
// Collective: only listening_addresses() of a job.
#include <cstdint>
#include <string>
#include <vector>

#include "ringtrain/allreduce/mpi/session.hpp"
#include "ringtrain/monitor/channel/messages.hpp"

namespace ringtrain::monitor {

/// One of rank 0's addresses, as text, and a port on which it listens there.
struct Endpoint {
  std::string address{};
  std::uint16_t port = 0;
};
/// "10.0.0.1 port 4711"
std::string to_text(const Endpoint& endpoint);

/// Where rank 0 listens for the others, which its broadcast tells them.
struct Rendezvous {
  JobToken token{};
  std::string network{};  ///< network_name() of rank 0
  std::vector<Endpoint> endpoints{};
  ProcessName process{};  ///< rank 0's
};

/// Throws Error where the system has no random bits.
JobToken new_token();
std::string to_text(const Rendezvous& rendezvous);
Rendezvous rendezvous_from_text(const std::string& text);

/// Those that may lead this rank to rank 0, in the order to try: a loopback address where it shares
/// rank 0's network, and none elsewhere.
std::vector<Endpoint> endpoints_from_here(const Rendezvous& rendezvous);

/// Where rank 0 listens: on the loopback for ranks that share its network, on `own`, its
/// job_addresses(), for others. Empty: on all interfaces, as it knows no address for others.
std::vector<std::string> listening_addresses(bool ranks_here, bool ranks_elsewhere,
                                             const std::vector<std::string>& own);
/// The same for this job, on rank 0. Collective.
std::vector<std::string> listening_addresses(const allreduce::MpiSession& session,
                                             const std::string& interfaces);

}  // namespace ringtrain::monitor
