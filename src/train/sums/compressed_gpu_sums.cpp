#include "train/sums/compressed_gpu_sums.hpp"

#include <utility>

#include "train/sums/cpu_sums.hpp"

namespace ringtrain::train {

std::unique_ptr<CompressedGpuSums> CompressedGpuSums::make(const RunPlan& plan,
                                                           const allreduce::MpiSession& session,
                                                           const compute::GpuBackend& backend,
                                                           allreduce::Communicator& gpus, View all,
                                                           std::function<double()> loss_scale,
                                                           monitor::Progress& progress) {
  if (!plan.compresses()) return nullptr;
  return std::unique_ptr<CompressedGpuSums>(
      new CompressedGpuSums(plan, session, backend, gpus, all, std::move(loss_scale), progress));
}

// The ranks of a host have GPUs to wait for, too: those that wait for each other leave their cores.
CompressedGpuSums::CompressedGpuSums(const RunPlan& plan, const allreduce::MpiSession& session,
                                     const compute::GpuBackend& backend,
                                     allreduce::Communicator& gpus, View all,
                                     std::function<double()> loss_scale,
                                     monitor::Progress& progress)
    : ring_(ring_of(plan, session)),
      notes_(notes_of_sums(plan, session, ring_)),
      cpus_(make_gradient_sums(plan, session, ring_, {}, true, progress)),
      staged_(allreduce::make_staged_sums(
          gpus, *cpus_, all,
          {.gpu = {.compute_stream = backend.stream()}, .scale = std::move(loss_scale)})),
      kept_(KeptCompression::make(plan, *cpus_, session)),
      host_links_(session) {
  if (ring_) cpus_->tune(ring_->plan.ring, ring_->plan.at_once);
}

}  // namespace ringtrain::train
