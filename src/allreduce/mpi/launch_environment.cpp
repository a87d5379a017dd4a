#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <system_error>

#include "ringtrain/allreduce/mpi/session.hpp"
#include "ringtrain/base/error.hpp"

namespace ringtrain::allreduce {
namespace {

std::optional<int> number(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  int value = 0;
  const auto parsed = std::from_chars(text, text + std::strlen(text), value);
  return parsed.ec == std::errc{} ? std::optional(value) : std::nullopt;
}

// Variables of launchers that MPI_Init understands: rank, size.
constexpr std::array<std::array<const char*, 2>, 3> launchers{{
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"PMIX_RANK", "SLURM_STEP_NUM_TASKS"},  // PMIx tells the size only when asked
    {"PMI_RANK", "PMI_SIZE"},
}};

}  // namespace

JobLaunch launch_from_environment() {
  for (const auto& [rank, size] : launchers)
    if (const auto value = number(rank)) return {true, *value, number(size).value_or(1)};
  // SLURM_STEP_NUM_TASKS is there in tasks started by srun only, not in the batch script itself.
  if (number("SLURM_STEP_NUM_TASKS").value_or(1) > 1)
    throw Error(Exit::usage, "srun started several tasks that cannot find each other",
                "start with srun --mpi=pmix, or with mpirun inside the allocation");
  return {};
}

}  // namespace ringtrain::allreduce
