#pragma once
#include <memory>

#include "ringtrain/allreduce/make_communicator.hpp"

namespace ringtrain {

class NcclCalls;

std::unique_ptr<Communicator> make_mpi_communicator(const MpiSession& session);
/// Prints a warning, on rank 0, where ranks share a GPU.
std::unique_ptr<Communicator> make_nccl_communicator(const MpiSession& session, const GpuSums& sums,
                                                     std::shared_ptr<NcclCalls> calls);
std::unique_ptr<Communicator> make_ring_communicator(const MpiSession& session,
                                                     const CommunicatorOptions& options);

}  // namespace ringtrain
