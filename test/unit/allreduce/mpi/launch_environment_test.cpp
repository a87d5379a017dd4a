#include <cstdlib>
#include <map>
#include <string>

#include "ringtrain/allreduce/mpi/session.hpp"
#include "ringtrain/base/error.hpp"
#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::allreduce;

namespace {

// What the launcher's environment says, with exactly these of its variables set.
JobLaunch launch_with(const std::map<std::string, std::string>& variables) {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK",
                           "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_NTASKS"})
    ::unsetenv(name);
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  return launch_from_environment();
}

}  // namespace

TEST_CASE("launch: no launcher means one rank and no MPI") {
  const JobLaunch launch = launch_with({});

  CHECK_FALSE(launch.mpi);
  CHECK(launch.rank == 0);
  CHECK(launch.size == 1);
}

TEST_CASE("launch: mpirun and srun --mpi=pmix tell rank and size") {
  const JobLaunch mpirun =
      launch_with({{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "4"}});
  const JobLaunch srun = launch_with({{"PMIX_RANK", "1"}, {"SLURM_STEP_NUM_TASKS", "3"}});

  CHECK((mpirun.mpi && mpirun.rank == 2 && mpirun.size == 4));
  CHECK((srun.mpi && srun.rank == 1 && srun.size == 3));
}

TEST_CASE("launch: a batch script that starts no tasks is one rank") {
  const JobLaunch launch = launch_with({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}});

  CHECK_FALSE(launch.mpi);
}

TEST_CASE("launch: tasks of srun that cannot find each other are refused") {
  CHECK_THROWS_WITH(launch_with({{"SLURM_STEP_NUM_TASKS", "2"}}), Catch::Contains("--mpi=pmix"));
}
