#pragma once
#include <memory>

#include "ringtrain/allreduce/communicator/communicator.hpp"
#include "ringtrain/allreduce/mpi/session.hpp"

namespace ringtrain::allreduce {

/// Sums by MPI_Allreduce, for comparison. Collective. `session` outlives it.
std::unique_ptr<Communicator> make_mpi_communicator(const MpiSession& session);

}  // namespace ringtrain::allreduce
