#pragma once
#include <memory>

#include "ringtrain/allreduce/communicator/communicator.hpp"
#include "ringtrain/allreduce/communicator/communicator_options.hpp"
#include "ringtrain/allreduce/mpi/session.hpp"

namespace ringtrain::allreduce {

class NcclApi;

/// As the public one, with these calls.
int choose_gpu(const MpiSession& session, bool same_bits, NcclApi& calls);
/// Sums between GPUs by NCCL. Collective. `session` outlives it.
std::unique_ptr<Communicator> make_nccl_communicator(const MpiSession& session, const GpuSums& sums,
                                                     std::shared_ptr<NcclApi> calls);

}  // namespace ringtrain::allreduce
