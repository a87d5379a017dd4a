#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <system_error>

#include "ringtrain/host/control_groups.hpp"
#include "ringtrain/host/launcher.hpp"
#include "ringtrain/host/threads.hpp"

namespace ringtrain {
namespace {

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == 0) return std::nullopt;
  return value;
}

std::optional<int> number_at(const char* name) {
  const auto text = variable(name);
  int value = 0;
  if (!text || std::from_chars(text->data(), text->data() + text->size(), value).ec != std::errc{})
    return std::nullopt;
  return value;
}

struct Launcher {
  const char *rank, *size;
  bool is_slurm = false;
};

/// Open MPI, MPICH and Intel MPI (Hydra), MVAPICH, Slurm's srun; the innermost launcher first. In a
/// batch script Slurm describes the tasks to come, not this process: only steps count.
constexpr std::array<Launcher, 4> launchers = {{
    {"OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"},
    {"SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE", true},
}};

/// Returns the launcher that started this rank, if one did.
const Launcher* find_local_rank(Place& place) {
  for (const Launcher& launcher : launchers) {
    const auto rank = number_at(launcher.rank), size = number_at(launcher.size);
    if (!rank || !size || *rank < 0 || *rank >= *size) continue;
    place.local_rank = *rank;
    place.local_size = *size;
    return &launcher;
  }
  return nullptr;
}

// OMP_PROC_BIND ties this thread to one cpu before main() begins; the places still have them all.
std::vector<int> mask_before_openmp() {
  std::vector<int> ids = affinity(0);
  for (int place = 0; place < ::omp_get_num_places(); ++place) {
    std::vector<int> more(static_cast<std::size_t>(::omp_get_place_num_procs(place)));
    ::omp_get_place_proc_ids(place, more.data());
    ids.insert(ids.end(), more.begin(), more.end());
  }
  std::ranges::sort(ids);
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

bool asked_open_mpi_4_to_place() {
  const auto binding = variable("OMPI_MCA_hwloc_base_binding_policy");
  const auto mapping = variable("OMPI_MCA_rmaps_base_mapping_policy");
  return (binding && *binding != "none") || variable("OMPI_MCA_hwloc_base_cpu_set") ||
         (mapping && mapping->find("PE=") != mapping->npos);
}

/// Slurm gives a task cpus of its own when it has fewer than the job has on this node.
bool slurm_placed(std::size_t mine) {
  const auto of_job = number_at("SLURM_CPUS_ON_NODE");
  return variable("SLURM_STEP_TASKS_PER_NODE") && of_job &&
         mine < static_cast<std::size_t>(*of_job);
}

int read_number(const std::string& path, int otherwise) {
  int value = otherwise;
  std::ifstream(path) >> value;
  return value;
}

Cpu cpu_of(int id) {
  const std::string folder = "/sys/devices/system/cpu/cpu" + std::to_string(id) + "/topology/";
  // The list of siblings starts with the smallest: a name of the core that is the same for all.
  return {.id = id,
          .core = read_number(folder + "thread_siblings_list", id),
          .package = read_number(folder + "physical_package_id", 0)};
}

/// cpus' worth of time that one control group grants, version 2 ("max 100000") or 1 (two files).
double quota_of(const std::string& folder) {
  double quota = 0, period = 0;
  std::ifstream unified(folder + "/cpu.max");
  if (unified >> quota >> period && quota > 0 && period > 0) return quota / period;
  std::ifstream(folder + "/cpu.cfs_quota_us") >> quota;
  std::ifstream(folder + "/cpu.cfs_period_us") >> period;
  return quota > 0 && period > 0 ? quota / period : std::numeric_limits<double>::infinity();
}

double find_quota() {
  double quota = std::numeric_limits<double>::infinity();
  for (const std::string& folder : control_groups("cpu")) quota = std::min(quota, quota_of(folder));
  return quota;
}

void request_threads(Place& place, std::optional<int> requested) {
  const auto of_environment = number_at("OMP_NUM_THREADS");
  if (requested) {
    place.requested = requested;
    place.requested_by = "--threads";
  } else if (of_environment && *of_environment > 0) {
    place.requested = of_environment;
    place.requested_by = "OMP_NUM_THREADS";
  }
}

}  // namespace

Place find_place(std::optional<int> requested) {
  Place place;
  const Launcher* launcher = find_local_rank(place);
  std::vector<int> ids = mask_before_openmp();
  const auto process = launcher_process();
  place.placed = asked_open_mpi_4_to_place() || (process && asked_for_binding(*process)) ||
                 (launcher != nullptr && launcher->is_slurm && slurm_placed(ids.size()));
  if (process && !place.placed)
    if (const std::vector<int> of_job = affinity(*process); !of_job.empty()) ids = of_job;
  if (ids.empty()) ids.push_back(0);
  std::ranges::transform(ids, std::back_inserter(place.cpus), cpu_of);
  place.quota = find_quota();
  request_threads(place, requested);
  return place;
}

}  // namespace ringtrain
