#include <omp.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "ringtrain/base/program.hpp"
#include "ringtrain/host/threads.hpp"

namespace ringtrain {
namespace {

constexpr const char* started_again = "RINGTRAIN_STARTED_AGAIN";
// Iterations an idle thread spins before it sleeps, some 20 microseconds. Measured with loops of 70
// on two cores, loops/s: alone on the host 13,500 as with endless spinning (sleeping at once:
// 9,000); beside other load 3,000, where endless spinning falls to 80 and sleeping at once keeps
// 4,500.
constexpr const char* spins = "1000";

/// Returns whether the mask changed. A mask that the system refuses costs speed only.
bool bind(const std::vector<int>& cpus) {
  cpu_set_t before, wanted;
  CPU_ZERO(&wanted);
  for (const int id : cpus)
    if (id < CPU_SETSIZE) CPU_SET(id, &wanted);
  if (::sched_getaffinity(0, sizeof before, &before) != 0) return false;
  if (CPU_EQUAL(&before, &wanted)) return false;
  return ::sched_setaffinity(0, sizeof wanted, &wanted) == 0;
}

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

void apply_threads(const ThreadPlan& plan) {
  const bool moved = bind(plan.cpus);
  ::omp_set_num_threads(plan.threads);
  const bool again = std::getenv(started_again) != nullptr;
  ::unsetenv(started_again);  // what this process starts is not this program
  if (again || plan.threads == 1 || (!moved && follows_policy(plan.active_wait))) return;
  request_policy(plan.active_wait);
  ::setenv(started_again, "1", 1);
  start_again();
  ::unsetenv(started_again);  // no second start: slower, not wrong
}

}  // namespace ringtrain
