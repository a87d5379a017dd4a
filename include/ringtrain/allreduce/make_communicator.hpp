#pragma once
#include <memory>
#include <string>

#include "ringtrain/allreduce/communicator/communicator.hpp"
#include "ringtrain/allreduce/mpi/session.hpp"
#include "ringtrain/base/late_library.hpp"

namespace ringtrain::allreduce {

/// `kind`: "ring" (shared memory in a host, our ring between hosts), "mpi" (MPI_Allreduce, for
/// comparison), "nccl" (between GPUs, in their memory), "solo" (one rank), or "auto" (between
/// CPUs). "nccl" throws Error(Exit::usage) where the build has none. Collective; on the main
/// thread, like all use of the communicator, but for abort() and check() of "nccl". `session`
/// outlives it.
std::unique_ptr<Communicator> make_communicator(const std::string& kind, const MpiSession& session,
                                                const CommunicatorOptions& options = {});

/// Open MPI's version and, with CUDA, NCCL's. Needs no MPI session, no GPU.
LibraryVersions allreduce_libraries();

}  // namespace ringtrain::allreduce
