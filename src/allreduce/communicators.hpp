#pragma once
#include <memory>

#include "ringtrain/allreduce/make_communicator.hpp"

namespace ringtrain {

class NcclCalls;

std::unique_ptr<Communicator> make_mpi_communicator(const MpiSession& session);
/// As the public one, with these calls.
int choose_gpu(const MpiSession& session, bool same_bits, NcclCalls& calls);
std::unique_ptr<Communicator> make_nccl_communicator(const MpiSession& session, const GpuSums& sums,
                                                     std::shared_ptr<NcclCalls> calls);
std::unique_ptr<Communicator> make_ring_communicator(const MpiSession& session,
                                                     const CommunicatorOptions& options);

}  // namespace ringtrain
