// How fast one rank runs small OpenMP loops on the threads it chose; to be compared between
// `mpirun -np 1 threads_bench` and `mpirun -np 2 threads_bench`: loops [seconds]
#include <fmt/core.h>
#include <omp.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "ringtrain/host/threads.hpp"

int main(int argc, char** argv) {
  using Clock = std::chrono::steady_clock;
  const ringtrain::host::ThreadPlan plan =
      ringtrain::host::plan_threads(ringtrain::host::detect_affinity(std::nullopt));
  ringtrain::host::apply_threads(plan);
  const double limit = argc > 1 ? std::atof(argv[1]) : 3;
  std::vector<double> values(1 << 14, 0.5);
  const auto start = Clock::now();
  long loops = 0;
  double seconds = 0;
  while (seconds < limit) {
#pragma omp parallel for
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(values[i]) + 0.1;
    ++loops;
    seconds = std::chrono::duration<double>(Clock::now() - start).count();
  }
  fmt::print("{}\n{:.0f} loops/s with {} threads\n", plan.text,
             static_cast<double>(loops) / seconds, omp_get_max_threads());
}
