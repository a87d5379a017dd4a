#include "ringtrain/host/threads.hpp"

#include <fmt/ranges.h>
#include <immintrin.h>
#include <omp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>
#include <tuple>
#include <vector>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/program.hpp"
#include "ringtrain/base/text.hpp"
#include "ringtrain/host/control_groups.hpp"
#include "ringtrain/host/launcher.hpp"
#include "ringtrain/host/numa.hpp"

namespace ringtrain::host {

namespace {

using Core = std::vector<int>;  // ids of its cpus

std::vector<Core> cores_of(std::vector<Cpu> cpus) {
  std::ranges::sort(cpus, {}, [](const Cpu& c) { return std::tuple(c.package, c.core, c.id); });
  std::vector<Core> cores;
  for (std::size_t i = 0; i < cpus.size(); ++i) {
    const bool same =
        i > 0 && cpus[i].core == cpus[i - 1].core && cpus[i].package == cpus[i - 1].package;
    if (!same) cores.emplace_back();
    cores.back().push_back(cpus[i].id);
  }
  return cores;
}

/// The cores of one rank: equal parts but for a remainder, all of them where they do not suffice.
std::vector<Core> share_of(const std::vector<Core>& cores, const CpuAffinity& place) {
  const auto ranks = static_cast<std::size_t>(place.local_size);
  const auto rank = static_cast<std::size_t>(place.local_rank);
  if (place.placed || cores.size() < ranks) return cores;
  if (!place.near.empty()) return cores_near(cores, place.near, place.local_rank);
  const auto begin = [&](std::size_t r) {
    return cores.begin() + static_cast<std::ptrdiff_t>(cores.size() * r / ranks);
  };
  return {begin(rank), begin(rank + 1)};
}

/// As many for every rank: the slowest rank sets the pace.
int default_threads(std::size_t cores, const CpuAffinity& place) {
  const auto ranks = static_cast<std::size_t>(place.local_size);
  const std::size_t whole = place.placed ? cores : cores / ranks;
  const double paid = place.quota / place.local_size;
  return std::max(1, static_cast<int>(std::min(static_cast<double>(whole), std::floor(paid))));
}

std::string text_of(const ThreadPlan& plan, const CpuAffinity& place, int asked, bool crowded) {
  std::string text = fmt::format("threads: {} a rank", plan.threads);
  if (plan.threads < asked)
    text += fmt::format(" (not {}, as OMP_THREAD_LIMIT is {})", asked, place.most);
  else if (place.requested)
    text += fmt::format(" (as {} asks)", place.requested_by);
  text += fmt::format(" on {} {}", plan.cpus.size() == 1 ? "cpu" : "cpus", ranges_text(plan.cpus));
  if (place.placed)
    text += ", where the launcher was told to put it";
  else
    text += fmt::format(" ({}, {} on this host)", plural(place.cpus.size(), "cpu"),
                        plural(static_cast<std::size_t>(place.local_size), "rank"));
  if (!place.near.empty()) text += ", those near its GPU first";
  if (!std::isinf(place.quota)) text += fmt::format(", time for {:.3g} cpus", place.quota);
  text += fmt::format(", wait policy {}", plan.active_wait ? "active" : "passive");
  if (crowded) text += "; more threads than cores";
  return text;
}

bool is_crowded(int threads, std::size_t cores, const CpuAffinity& place) {
  const auto all = static_cast<std::size_t>(threads) * place.local_size;
  return static_cast<double>(all) > place.quota || (place.placed ? threads : all) > cores;
}

}  // namespace

ThreadPlan plan_threads(const CpuAffinity& place) {
  expects(!place.cpus.empty() && place.local_rank >= 0 && place.local_rank < place.local_size,
          "plan_threads: a host with a cpu, and a rank on it");
  expects(place.near.empty() || std::ssize(place.near) == place.local_size,
          "plan_threads: near cpus of each rank");
  const std::vector<Core> cores = cores_of(place.cpus);
  ThreadPlan plan;
  plan.place = place;
  for (const Core& core : share_of(cores, place))
    plan.cpus.insert(plan.cpus.end(), core.begin(), core.end());
  std::ranges::sort(plan.cpus);
  const int asked = place.requested.value_or(default_threads(cores.size(), place));
  plan.threads = std::min(asked, place.most);
  const bool crowded = is_crowded(plan.threads, cores.size(), place);
  plan.active_wait = !crowded;
  plan.text = text_of(plan, place, asked, crowded);
  return plan;
}

std::string cpu_name() {
  std::ifstream lines("/proc/cpuinfo");
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("model name"))
      if (const auto colon = line.find(": "); colon != line.npos)
        return printable(line.substr(colon + 2));
  return "a CPU";
}

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
const Launcher* find_local_rank(CpuAffinity& place) {
  for (const Launcher& launcher : launchers) {
    const auto rank = number_at(launcher.rank), size = number_at(launcher.size);
    if (!rank || !size || *rank < 0 || *rank >= *size) continue;
    place.local_rank = *rank;
    place.local_size = *size;
    return &launcher;
  }
  return nullptr;
}

// Its value: the cpus that this process had before it bound itself and started again.
constexpr const char* started_again = "RINGTRAIN_STARTED_AGAIN";

// OMP_PROC_BIND ties this thread to one cpu before main() begins; the places still have them all.
std::vector<int> mask_before_openmp() {
  std::vector<int> ids;
  std::istringstream first(variable(started_again).value_or(""));
  for (int id = 0; first >> id;) ids.push_back(id);
  if (!ids.empty()) return ids;
  ids = affinity(0);
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

void request_threads(CpuAffinity& place, std::optional<int> requested) {
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

CpuAffinity detect_affinity(std::optional<int> requested) {
  CpuAffinity place;
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
  place.most = ::omp_get_thread_limit();
  request_threads(place, requested);
  return place;
}

namespace {

// Iterations an idle thread spins before it sleeps, some 20 microseconds. Measured with loops of 70
// on two cores, loops/s: alone on the host 13,500 as with endless spinning (sleeping at once:
// 9,000); beside other load 3,000, where endless spinning falls to 80 and sleeping at once keeps
// 4,500.
constexpr const char* spins = "1000";

bool follows_policy(bool active) {
  const char* policy = std::getenv("OMP_WAIT_POLICY");
  return policy != nullptr || (active && std::getenv("GOMP_SPINCOUNT") != nullptr);
}

void request_policy(bool active) {
  ::setenv("OMP_WAIT_POLICY", active ? "active" : "passive", 0);
  if (active) ::setenv("GOMP_SPINCOUNT", spins, 0);
}

// Returns only where that is not possible.
void start_again() {
  std::vector<std::string> words = own_command();
  if (words.empty()) return;
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execv("/proc/self/exe", argv.data());
}

}  // namespace

bool bind_to(const std::vector<int>& cpus) {
  cpu_set_t before, wanted;
  CPU_ZERO(&wanted);
  for (const int id : cpus)
    if (id < CPU_SETSIZE) CPU_SET(id, &wanted);
  if (::sched_getaffinity(0, sizeof before, &before) != 0) return false;
  if (CPU_EQUAL(&before, &wanted)) return false;
  return ::sched_setaffinity(0, sizeof wanted, &wanted) == 0;
}

void flush_denormals() {
  _MM_SET_FLUSH_ZERO_MODE(_MM_FLUSH_ZERO_ON);          // results
  _MM_SET_DENORMALS_ZERO_MODE(_MM_DENORMALS_ZERO_ON);  // operands
}

void apply_threads(const ThreadPlan& plan) {
  flush_denormals();
  ::omp_set_dynamic(0);
  ::omp_set_max_active_levels(1);
  const std::vector<int> mask = mask_before_openmp();
  const bool moved = bind_to(plan.cpus);
  ::omp_set_num_threads(plan.threads);
  const bool again = std::getenv(started_again) != nullptr;
  if (again) ::prctl(PR_SET_NAME, program_invocation_short_name);  // else "exe" in top and pgrep
  ::unsetenv(started_again);  // what this process starts is not this program
  if (again || plan.threads == 1 || (!moved && follows_policy(plan.active_wait))) return;
  request_policy(plan.active_wait);
  ::setenv(started_again, fmt::format("{}", fmt::join(mask, " ")).c_str(), 1);
  start_again();
  ::unsetenv(started_again);  // no second start: slower, not wrong
}

}  // namespace ringtrain::host
