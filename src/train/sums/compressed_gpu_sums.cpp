#include "train/sums/compressed_gpu_sums.hpp"

#include <omp.h>

#include <algorithm>
#include <array>

#include "train/sums/cpu_sums.hpp"

namespace ringtrain::train {

std::unique_ptr<CompressedGpuSums> CompressedGpuSums::make(const RunPlan& plan,
                                                           const allreduce::MpiSession& session,
                                                           const compute::GpuBackend& backend,
                                                           allreduce::Communicator& gpus, View all,
                                                           monitor::Progress& progress) {
  if (!plan.compresses()) return nullptr;
  return std::unique_ptr<CompressedGpuSums>(
      new CompressedGpuSums(plan, session, backend, gpus, all, progress));
}

namespace {

// Of those that would compute without a GPU: images are decoded, too.
int compressing_threads() { return std::clamp(omp_get_max_threads() / 2, 1, 8); }

}  // namespace

// The ranks of a host have GPUs to wait for, too: those that wait for each other leave their cores.
CompressedGpuSums::CompressedGpuSums(const RunPlan& plan, const allreduce::MpiSession& session,
                                     const compute::GpuBackend& backend,
                                     allreduce::Communicator& gpus, View all,
                                     monitor::Progress& progress)
    : ring_(ring_of(plan, session)),
      notes_(notes_of_sums(plan, session, ring_)),
      cpus_(make_gradient_sums(plan, session, ring_, true, progress, compressing_threads())),
      staged_(allreduce::make_staged_sums(gpus, *cpus_, all, backend.stream())),
      kept_(KeptCompression::make(plan, *staged_, session)),
      host_links_(session) {
  std::array unpinned = {staged_->pinned() ? 0.0 : 1.0};
  session.maximum(unpinned);
  if (unpinned.front() > 0)
    notes_.push_back(
        "compression: CUDA cannot lock the memory that gradients are copied to in place on every "
        "rank (ulimit -l?): copies are slow and do not run beside the backward pass");
}

}  // namespace ringtrain::train
