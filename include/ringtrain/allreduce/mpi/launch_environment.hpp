#pragma once

namespace ringtrain::allreduce {

/// What the launcher's environment says about this process, before MPI is up: who prints usage
/// errors, who starts the checkpoint writer.
struct JobLaunch {
  bool mpi = false;  ///< started by something that MPI_Init can talk to
  int rank = 0, size = 1;
};

/// Reads the variables of mpirun, PMIx, PMI and Slurm. Throws Error(Exit::usage) when Slurm started
/// several tasks without a way to find each other.
JobLaunch launch_from_environment();

}  // namespace ringtrain::allreduce
