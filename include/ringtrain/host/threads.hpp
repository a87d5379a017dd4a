#pragma once
// Room `host`: what the machine under this process offers - processors and control groups, network
// interfaces, the launcher, the terminal, signals, stack traces. Linux only.
//
// Threads: the main thread, where a contract says nothing else. Nothing here is collective.
//
// What a host does not show counts as not limited: looking never fails.
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace ringtrain::host {

/// A processor as the scheduler counts them; those of one core share its arithmetic units.
struct Cpu {
  int id = 0, core = 0, package = 0;
  friend bool operator==(const Cpu&, const Cpu&) = default;
};

/// What a rank finds on its host before MPI is there.
struct CpuAffinity {
  std::vector<Cpu> cpus;  ///< those the job may use; or, where `placed`, this rank
  /// The user told the launcher where ranks go. A launcher's default binding (one core a rank) is
  /// no such wish: it would leave cores of the host idle.
  bool placed = false;
  double quota = std::numeric_limits<double>::infinity();  ///< cpus' worth of time for the job
  int local_rank = 0, local_size = 1;
  std::optional<int> requested;  ///< threads a rank
  std::string requested_by = {};
  int most = std::numeric_limits<int>::max();  ///< threads a rank, of OMP_THREAD_LIMIT
  /// The cpus beside what each rank of the host works with, such as its GPU. Empty: not known.
  std::vector<std::vector<int>> near = {};
};

/// How a rank uses its host.
struct ThreadPlan {
  int threads = 1;
  std::vector<int> cpus;  ///< for all threads of the rank: compute, loader, communication
  /// Whether idle compute threads spin: only when every thread has a core of its own.
  bool active_wait = false;
  std::string text = {};   ///< one line for the user
  CpuAffinity place = {};  ///< what it was made of
};

/// Shares the host between its ranks: whole cores, neighbours together, one compute thread a core.
/// A host with more ranks than cores is left to the scheduler. Never more than OpenMP would start:
/// oneDNN waits for all that it was promised.
ThreadPlan plan_threads(const CpuAffinity& place);

/// Looks at the launcher's environment, its processor mask, control groups and OMP_NUM_THREADS,
/// which counts where `requested` is unset. Never fails: what is not there is not limited.
CpuAffinity detect_affinity(std::optional<int> requested);

/// This thread, and those that it starts from now on, run on `cpus`. Returns whether that changed
/// anything. What the system refuses costs speed only.
bool bind_to(const std::vector<int>& cpus);

/// From now on floats below 1.2e-38 (denormals) count as 0, in this thread and those that it
/// starts. Some CPUs take a hundred times as long for each, so that steps become slow where
/// activations or weights fade away (Intel 64 and IA-32 Architectures Optimization Reference
/// Manual, 3.9.3.1).
void flush_denormals();

/// Makes the process follow `plan`, with teams of all threads whatever OMP_DYNAMIC and
/// OMP_MAX_ACTIVE_LEVELS say, and flush_denormals(). To be called first in main(), while
/// there is one thread: OpenMP reads processors and wait policy only when it is loaded, so this
/// starts the program again, once, where they change.
void apply_threads(const ThreadPlan& plan);

/// This host's processor as it calls itself: "AMD EPYC 9R14"; "a CPU" where it does not say.
std::string cpu_name();

}  // namespace ringtrain::host
