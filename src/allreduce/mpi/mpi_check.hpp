#pragma once
#include <mpi.h>

#include <source_location>
#include <string_view>

#include "ringtrain/base/late_library.hpp"

namespace ringtrain::allreduce::mpi {

/// Throws Error with MPI's own words unless `code` is MPI_SUCCESS.
void check(int code, std::string_view call,
           std::source_location at = std::source_location::current());

/// Open MPI's.
LibraryVersion version();

// Communicators are freed by MPI_Finalize: MPI_Comm_free is collective, and destructors must not
// be.

/// The ranks of `color`, ordered by `key`. Collective over `all`.
MPI_Comm split(MPI_Comm all, int color, int key);

}  // namespace ringtrain::allreduce::mpi
