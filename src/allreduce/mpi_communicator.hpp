#pragma once
#include <memory>

#include "ringtrain/allreduce/communicator.hpp"
#include "ringtrain/allreduce/mpi_session.hpp"

namespace ringtrain {

/// Sums by MPI_Allreduce, for comparison. Collective. `session` outlives it.
std::unique_ptr<Communicator> make_mpi_communicator(const MpiSession& session);

}  // namespace ringtrain
