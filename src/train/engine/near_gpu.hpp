#pragma once
#include "ringtrain/allreduce/mpi/session.hpp"
#include "ringtrain/host/threads.hpp"

namespace ringtrain::train {

/// `threads` with the cores near the GPU that this rank will have, which this thread and those that
/// it starts keep to from now on. As it is where the user has placed ranks, and where the system
/// does not know each GPU's NUMA node. RINGTRAIN_SYSTEM_ROOT names a folder to read instead of /,
/// for tests. Collective; all ranks see a GPU.
host::ThreadPlan threads_near_gpu(const host::ThreadPlan& threads,
                                  const allreduce::MpiSession& session);

}  // namespace ringtrain::train
