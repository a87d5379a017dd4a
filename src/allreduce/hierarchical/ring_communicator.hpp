#pragma once
#include <memory>

#include "ringtrain/allreduce/communicator/communicator.hpp"
#include "ringtrain/allreduce/mpi/session.hpp"

namespace ringtrain::allreduce {

/// Sums through shared memory in a host and by our ring between hosts. Collective. `session`
/// outlives it.
std::unique_ptr<Communicator> make_ring_communicator(const MpiSession& session,
                                                     const CommunicatorOptions& options);

}  // namespace ringtrain::allreduce
