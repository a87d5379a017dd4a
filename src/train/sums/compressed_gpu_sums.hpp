#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ringtrain/allreduce/communicator/gradient_reducer.hpp"
#include "ringtrain/allreduce/hierarchical/tune_ring.hpp"
#include "ringtrain/allreduce/nccl/staged_sums.hpp"
#include "ringtrain/compute/gpu.hpp"
#include "ringtrain/monitor/progress.hpp"
#include "train/sums/kept_compression.hpp"

namespace ringtrain::train {

/// The sums of gradients of GPUs that travel compressed between hosts: CPUs compress and sum them,
/// by the same ring as without GPUs.
class CompressedGpuSums {
 public:
  /// `gpus` and `all` as make_staged_sums() wants them; what is passed outlives this object. Null
  /// where `plan` does not compress. Collective.
  static std::unique_ptr<CompressedGpuSums> make(const RunPlan& plan,
                                                 const allreduce::MpiSession& session,
                                                 const compute::GpuBackend& backend,
                                                 allreduce::Communicator& gpus, View all,
                                                 monitor::Progress& progress);

  allreduce::Communicator& communicator() { return *staged_; }
  /// See StagedSums::follow_scale().
  void follow_scale(View scale) { staged_->follow_scale(scale); }
  /// After GradientReducer::finish() of a step: what was left out of its sums is due in the next,
  /// if the step counts.
  void accept(allreduce::GradientReducer& reducer) const {
    if (staged_->finite()) reducer.accept();
  }
  const allreduce::RingChoice* ring() const { return ring_ ? &*ring_ : nullptr; }
  std::vector<double> measure_host_links() { return host_links_.measure(); }
  /// Null where no rank keeps any.
  KeptCompression* kept() { return kept_.get(); }
  const std::vector<std::string>& notes() const { return notes_; }
  /// Collective.
  void close() { cpus_->close(); }

 private:
  CompressedGpuSums(const RunPlan& plan, const allreduce::MpiSession& session,
                    const compute::GpuBackend& backend, allreduce::Communicator& gpus, View all,
                    monitor::Progress& progress);

  const std::optional<allreduce::RingChoice> ring_;
  std::vector<std::string> notes_;
  const std::unique_ptr<allreduce::Communicator> cpus_;
  const std::unique_ptr<allreduce::StagedSums> staged_;
  const std::unique_ptr<KeptCompression> kept_;
  allreduce::HostLinks host_links_;
};

}  // namespace ringtrain::train
