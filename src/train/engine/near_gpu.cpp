#include "train/engine/near_gpu.hpp"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "ringtrain/allreduce/nccl/gpu_assignment.hpp"
#include "ringtrain/host/numa.hpp"

namespace ringtrain::train {

host::ThreadPlan threads_near_gpu(const host::ThreadPlan& threads,
                                  const allreduce::MpiSession& session) {
  const std::vector<std::string> gpus = allreduce::gpus_of_host(session);
  host::CpuAffinity place = threads.place;
  if (place.local_rank != session.local_rank() || place.local_size != session.local_size())
    return threads;  // containers on one machine
  const char* const root = std::getenv("RINGTRAIN_SYSTEM_ROOT");
  for (const std::string& gpu : gpus)
    place.near.push_back(host::cpus_near(gpu, root == nullptr ? "" : root));
  if (std::ranges::any_of(place.near, &std::vector<int>::empty)) return threads;
  host::ThreadPlan plan = host::plan_threads(place);
  if (plan.cpus == threads.cpus) return threads;
  host::bind_to(plan.cpus);
  return plan;
}

}  // namespace ringtrain::train
