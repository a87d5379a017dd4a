#pragma once
#include <memory>

#include "ringtrain/allreduce/make_communicator.hpp"

namespace ringtrain {

std::unique_ptr<Communicator> make_mpi_communicator(const MpiSession& session);
std::unique_ptr<Communicator> make_ring_communicator(const MpiSession& session,
                                                     const CommunicatorOptions& options);

}  // namespace ringtrain
