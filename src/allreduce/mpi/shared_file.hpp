#pragma once
#include "allreduce/mpi/mpi_check.hpp"
#include "ringtrain/base/file.hpp"

namespace ringtrain::allreduce {

/// An empty file without a name, the same one on all ranks of `local`, one host's. Throws Error
/// (usage) on the ranks that cannot reach it, as in another container. Collective.
FileDescriptor open_together(MPI_Comm local);

}  // namespace ringtrain::allreduce
