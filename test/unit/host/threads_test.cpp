#include "ringtrain/host/threads.hpp"

#include <fmt/core.h>
#include <omp.h>
#include <sched.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <string_view>
#include <thread>

#include "ringtrain/base/error.hpp"
#include "ringtrain/host/launcher.hpp"
#include "support/catch.hpp"
#include "support/variable.hpp"

using namespace ringtrain;
using namespace ringtrain::host;
using Catch::Contains;

namespace {

using Ids = std::vector<int>;

/// Cores of one cpu each.
std::vector<Cpu> plain_cpus(int count) {
  std::vector<Cpu> cpus;
  for (int id = 0; id < count; ++id) cpus.push_back({id, id, 0});
  return cpus;
}

ThreadPlan thread_plan(const std::vector<Cpu>& cpus, int rank, int ranks) {
  CpuAffinity place;
  place.cpus = cpus;
  place.local_rank = rank;
  place.local_size = ranks;
  return plan_threads(place);
}

constexpr std::array launcher_variables = {"OMPI_COMM_WORLD_LOCAL_RANK",
                                           "OMPI_COMM_WORLD_LOCAL_SIZE",
                                           "OMPI_MCA_hwloc_base_binding_policy",
                                           "OMPI_MCA_rmaps_base_mapping_policy",
                                           "OMPI_MCA_hwloc_base_cpu_set",
                                           "MPI_LOCALRANKID",
                                           "MPI_LOCALNRANKS",
                                           "SLURM_LOCALID",
                                           "SLURM_STEP_TASKS_PER_NODE",
                                           "SLURM_CPUS_ON_NODE",
                                           "SLURM_NTASKS_PER_NODE",
                                           "OMP_NUM_THREADS"};

/// An environment without any launcher, then with the variables given.
class Environment {
 public:
  explicit Environment(const std::vector<std::pair<const char*, const char*>>& variables) {
    for (const char* name : launcher_variables) add(name, nullptr);
    for (const auto& [name, value] : variables) add(name, value);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  ~Environment() {
    while (!held_.empty()) held_.pop_back();
  }

 private:
  void add(const char* name, const char* value) {
    held_.push_back(std::make_unique<Variable>(name, value));
  }
  std::vector<std::unique_ptr<Variable>> held_;
};

Ids current_mask() {
  cpu_set_t set;
  check_errno(::sched_getaffinity(0, sizeof set, &set), "sched_getaffinity");
  Ids ids;
  for (int id = 0; id < CPU_SETSIZE; ++id)
    if (CPU_ISSET(id, &set)) ids.push_back(id);
  return ids;
}

void set_mask(const Ids& ids) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int id : ids) CPU_SET(id, &set);
  check_errno(::sched_setaffinity(0, sizeof set, &set), "sched_setaffinity");
}

std::string output_of(const std::string& command) {
  std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), ::pclose);
  std::string text;
  for (int c = 0; (c = std::fgetc(pipe.get())) != EOF;) text += static_cast<char>(c);
  return text;
}

}  // namespace

TEST_CASE("threads: one rank has the whole host") {
  const ThreadPlan plan = thread_plan(plain_cpus(2), 0, 1);

  CHECK(plan.threads == 2);
  CHECK(plan.cpus == Ids{0, 1});
  CHECK(plan.active_wait);
  CHECK(plan.text ==
        "threads: 2 a rank on cpus 0-1 (2 cpus, 1 rank on this host), wait policy active");
}

TEST_CASE("threads: ranks share the host in equal parts that do not overlap") {
  CHECK(thread_plan(plain_cpus(2), 0, 2).cpus == Ids{0});
  CHECK(thread_plan(plain_cpus(2), 1, 2).cpus == Ids{1});
  CHECK(thread_plan(plain_cpus(2), 1, 2).threads == 1);
  CHECK(thread_plan(plain_cpus(8), 1, 2).cpus == Ids{4, 5, 6, 7});
  CHECK(thread_plan(plain_cpus(2), 1, 2).text ==
        "threads: 1 a rank on cpu 1 (2 cpus, 2 ranks on this host), wait policy active");
}

TEST_CASE("threads: a remainder of cores serves loaders, not one fast rank") {
  Ids all;
  for (int rank = 0; rank < 3; ++rank) {
    const ThreadPlan plan = thread_plan(plain_cpus(8), rank, 3);
    CHECK(plan.threads == 2);
    all.insert(all.end(), plan.cpus.begin(), plan.cpus.end());
  }

  CHECK(all == Ids{0, 1, 2, 3, 4, 5, 6, 7});
}

TEST_CASE("threads: more ranks than cores share them all, without spinning") {
  const ThreadPlan plan = thread_plan(plain_cpus(2), 3, 4);

  CHECK(plan.threads == 1);
  CHECK(plan.cpus == Ids{0, 1});
  CHECK_FALSE(plan.active_wait);
  CHECK_THAT(plan.text, Contains("wait policy passive; more threads than cores"));
}

TEST_CASE("threads: a core is given whole and gets one compute thread") {
  // as many machines count them: cpu 0 and 4 are one core, 1 and 5 the next
  std::vector<Cpu> cpus;
  for (int id = 0; id < 8; ++id) cpus.push_back({id, id % 4, 0});

  const ThreadPlan plan = thread_plan(cpus, 1, 2);

  CHECK(plan.threads == 2);
  CHECK(plan.cpus == Ids{2, 3, 6, 7});
  CHECK_THAT(plan.text, Contains("cpus 2-3,6-7"));
}

TEST_CASE("threads: a rank's cores are on one package where cpus alternate between packages") {
  std::vector<Cpu> cpus;
  for (int id = 0; id < 8; ++id) cpus.push_back({id, id, id % 2});

  CHECK(thread_plan(cpus, 0, 2).cpus == Ids{0, 2, 4, 6});
  CHECK(thread_plan(cpus, 1, 2).cpus == Ids{1, 3, 5, 7});
}

TEST_CASE("threads: where the launcher was told to put ranks, its choice stays") {
  CpuAffinity place;
  place.cpus = {{5, 5, 0}, {6, 6, 0}};
  place.placed = true;
  place.local_rank = 1;
  place.local_size = 2;

  const ThreadPlan plan = plan_threads(place);

  CHECK(plan.threads == 2);
  CHECK(plan.cpus == Ids{5, 6});
  CHECK(plan.active_wait);
}

TEST_CASE("threads: a quota of processor time limits threads, not cpus") {
  CpuAffinity place;
  place.cpus = plain_cpus(16);
  place.local_size = 2;
  place.quota = 4.5;

  CHECK(plan_threads(place).threads == 2);
  CHECK(plan_threads(place).cpus.size() == 8);
  place.quota = 0.5;
  CHECK(plan_threads(place).threads == 1);
  CHECK_FALSE(plan_threads(place).active_wait);
}

TEST_CASE("threads: what is asked for is done, and said") {
  CpuAffinity place;
  place.cpus = plain_cpus(4);
  place.requested = 3;
  place.requested_by = "--threads";

  CHECK(plan_threads(place).threads == 3);
  CHECK_THAT(plan_threads(place).text, Contains("3 a rank (as --threads asks) on cpus 0-3"));
  CHECK(plan_threads(place).active_wait);
  place.local_size = 2;
  CHECK_FALSE(plan_threads(place).active_wait);
}

TEST_CASE("threads: OMP_THREAD_LIMIT caps them, and that is said") {
  CpuAffinity place;
  place.cpus = plain_cpus(4);
  place.most = 2;

  CHECK(plan_threads(place).threads == 2);
  CHECK_THAT(plan_threads(place).text, Contains("2 a rank (not 4, as OMP_THREAD_LIMIT is 2)"));
  place.requested = 2;
  place.requested_by = "--threads";
  CHECK_THAT(plan_threads(place).text, Contains("2 a rank (as --threads asks)"));
}

TEST_CASE("threads: a place without cpus or rank is refused") {
  CHECK_THROWS_AS(thread_plan({}, 0, 1), Error);
  CHECK_THROWS_AS(thread_plan(plain_cpus(2), 2, 2), Error);
}

TEST_CASE("place: each launcher's local rank is understood") {
  using Pair = std::pair<const char*, const char*>;
  const auto names = GENERATE(Pair{"OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
                              Pair{"MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
                              Pair{"SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"});
  const Environment environment({{names.first, "1"}, {names.second, "3"}});

  const CpuAffinity place = detect_affinity(std::nullopt);

  CHECK(place.local_rank == 1);
  CHECK(place.local_size == 3);
  CHECK_FALSE(place.placed);
}

TEST_CASE("place: without a launcher, or with nonsense from one, there is one rank") {
  const auto [rank, size] = GENERATE(table<const char*, const char*>(
      {{nullptr, nullptr}, {"x", "2"}, {"2", "2"}, {"-1", "2"}, {"0", nullptr}}));
  const Environment environment(
      {{"OMPI_COMM_WORLD_LOCAL_RANK", rank}, {"OMPI_COMM_WORLD_LOCAL_SIZE", size}});

  const CpuAffinity place = detect_affinity(std::nullopt);

  CHECK(place.local_rank == 0);
  CHECK(place.local_size == 1);
  CHECK_FALSE(place.cpus.empty());
}

TEST_CASE("place: a batch script's own process is one rank, whatever the tasks to come") {
  const Environment environment({{"SLURM_LOCALID", "0"}, {"SLURM_NTASKS_PER_NODE", "4"}});

  CHECK(detect_affinity(std::nullopt).local_size == 1);
}

TEST_CASE("place: Slurm's cpus for a task stay, but not where mpirun runs inside of its job") {
  const Environment srun({{"SLURM_LOCALID", "0"},
                          {"SLURM_STEP_TASKS_PER_NODE", "2(x3)"},
                          {"SLURM_CPUS_ON_NODE", "100000"}});
  CHECK(detect_affinity(std::nullopt).placed);
  CHECK(detect_affinity(std::nullopt).local_size == 2);

  const Environment mpirun({{"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                            {"SLURM_LOCALID", "0"},
                            {"SLURM_STEP_TASKS_PER_NODE", "1"},
                            {"SLURM_CPUS_ON_NODE", "100000"}});

  CHECK_FALSE(detect_affinity(std::nullopt).placed);
  CHECK(detect_affinity(std::nullopt).local_size == 4);
}

TEST_CASE("place: a binding that the user asked for is told from the launcher's default") {
  const auto [name, value, placed] = GENERATE(table<const char*, const char*, bool>(
      {{"OMPI_MCA_hwloc_base_binding_policy", "core", true},
       {"OMPI_MCA_hwloc_base_binding_policy", "none", false},
       {"OMPI_MCA_rmaps_base_mapping_policy", "slot:PE=2", true},
       {"OMPI_MCA_rmaps_base_mapping_policy", "node", false},
       {"OMPI_MCA_hwloc_base_cpu_set", "1", true}}));
  CAPTURE(name, value);
  const Environment environment({std::pair{name, value}});

  CHECK(detect_affinity(std::nullopt).placed == placed);
}

TEST_CASE("place: a binding that Open MPI 5's command line or environment asks for is seen") {
  const auto [words, binds] = GENERATE(table<std::vector<std::string>, bool>(
      {{{"prterun", "-np", "2", "train", "--model", "mlp"}, false},
       {{"prterun", "--bind-to", "core", "train"}, true},
       {{"prterun", "-bind-to", "core", "train"}, true},
       {{"prterun", "--bind-to=hwthread:overload-allowed", "train"}, true},
       {{"prterun", "--bind-to", "none", "train"}, false},
       {{"prterun", "--bind-to", "none:report", "train"}, false},
       {{"prterun", "--bind-to"}, false},
       {{"prterun", "--map-by", "slot:PE=2", "train"}, true},
       {{"prterun", "--map-by", "node", "train"}, false},
       {{"prterun", "--cpu-set", "1,3", "train"}, true},
       {{"prterun", "--rankfile", "ranks", "train"}, true},
       {{"prterun", "--prtemca", "hwloc_default_binding_policy", "core", "train"}, true},
       {{"prterun", "--mca", "hwloc_default_binding_policy", "none", "train"}, false},
       {{"HOME=/", "PRTE_MCA_hwloc_default_binding_policy=core"}, true},
       {{"HOME=/", "PRTE_MCA_hwloc_default_binding_policy=none"}, false},
       {{"PRTE_MCA_rmaps_default_mapping_policy=node", "PATH=--bind-to", "core"}, false},
       {{"-", "--", "="}, false}}));
  CAPTURE(words);
  CHECK(asks_for_binding(words) == binds);
}

TEST_CASE("place: OMP_NUM_THREADS counts where no option does") {
  const Environment environment({std::pair{"OMP_NUM_THREADS", "7"}});

  CHECK(detect_affinity(std::nullopt).requested == 7);
  CHECK(detect_affinity(std::nullopt).requested_by == "OMP_NUM_THREADS");
  CHECK(detect_affinity(3).requested == 3);
}

// Runs only in a process that the next test starts.
TEST_CASE("probe of the next test", "[.probe]") {
  Ids cpus;
  const char* const probe = std::getenv("RINGTRAIN_PROBE");
  REQUIRE(probe != nullptr);
  for (const char c : std::string_view(probe)) cpus.push_back(c - '0');

  apply_threads({.threads = 2, .cpus = cpus, .active_wait = false});

  // the environment as it was when the program was loaded
  std::ifstream file("/proc/self/environ");
  const std::string loaded(std::istreambuf_iterator<char>(file), {});
  std::string name;
  std::ifstream("/proc/self/comm") >> name;
  fmt::print("[procs {} threads {} loaded passive {} marked {} named {}]\n", omp_get_num_procs(),
             omp_get_max_threads(), loaded.find("OMP_WAIT_POLICY=passive") != loaded.npos,
             std::getenv("RINGTRAIN_STARTED_AGAIN") != nullptr, name);
}

TEST_CASE("threads: a bound process starts again once, and OpenMP sees all its cpus") {
  const Ids mask = current_mask();
  if (mask.size() < 2 || mask[1] > 9) skip_test("needs two cpus, both below 10");
  const Variable policy("OMP_WAIT_POLICY", nullptr);
  const std::string self = fmt::format("/proc/{}/exe", ::getpid());

  set_mask({mask[0]});
  const std::string text =
      output_of(fmt::format("RINGTRAIN_PROBE={}{} bash -c \"exec -a some/trainer {} '[probe]'\"",
                            mask[0], mask[1], self));
  set_mask(mask);

  CHECK_THAT(text, Contains("[procs 2 threads 2 loaded passive true marked false named trainer]"));
}

// Runs only in a process that the next test starts.
TEST_CASE("team of the next test", "[.team]") {
  const ThreadPlan plan = plan_threads(detect_affinity(3));
  apply_threads(plan);

  int team = 0;
#pragma omp parallel
#pragma omp single
  team = omp_get_num_threads();
  fmt::print("[planned {}, team of {}]\n", plan.threads, team);
}

TEST_CASE("threads: whatever the environment tells OpenMP, a team has the planned threads") {
  const auto [variables, planned] =
      GENERATE(table<std::string, int>({{"OMP_THREAD_LIMIT=2", 2},
                                        {"OMP_THREAD_LIMIT=1", 1},
                                        {"OMP_DYNAMIC=true OMP_MAX_ACTIVE_LEVELS=0", 3}}));
  const std::string text =
      output_of(fmt::format("{} OMP_WAIT_POLICY=passive /proc/{}/exe '[team]'", variables, ::getpid()));

  CHECK_THAT(text, Contains(fmt::format("[planned {0}, team of {0}]", planned)));
}

TEST_CASE("threads: denormals are 0 in a thread and in those that it starts") {
  const auto product = [] {
    volatile float tiny = 1e-39f, one = 1;
    return tiny * one;
  };
  float before = 0, own = 1, of_thread = 1;
  int not_zero = 0;
  std::thread([&] {  // the other tests go on as they are
    before = product();
    flush_denormals();
    own = product();
    std::thread([&] { of_thread = product(); }).join();
#pragma omp parallel num_threads(3) reduction(+ : not_zero)
    not_zero += product() != 0;
  })
      .join();

  CHECK(before > 0);
  CHECK(own == 0);
  CHECK(of_thread == 0);
  CHECK(not_zero == 0);
}
