#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "ringtrain/allreduce/communicator/gradient_reducer.hpp"
#include "ringtrain/compute/gpu.hpp"
#include "train/plan/run_plan.hpp"
#include "train/state/training_state.hpp"

namespace ringtrain::train {

/// How GPUs' sums are cut into buckets: each rank's part begins at 16 bytes, at which kernels and
/// NCCL read fastest. Two ranks sum to the same bits whether all get the sums or each its part.
/// More ranks do where NCCL adds in one order: its all-reduce and reduce-scatter may differ in
/// that.
allreduce::Buckets gpu_buckets(const RunPlan& plan);
/// Zeros that go behind parameters and gradients, so that each bucket has equal parts for all
/// ranks.
std::size_t gpu_padding(const RunPlan& plan);

/// The optimizer of GPUs, shared among the ranks (ZeRO stage 1: Rajbhandari et al. 2020): of each
/// bucket's gradients this rank gets the sums of its part, updates these parameters, and all ranks
/// gather them in fp32, from which each makes its own copy in 16 bits.
class GpuShards {
 public:
  /// `bounds`: of the buckets, in elements of the sums, whose gradients begin at `first_gradient`.
  /// `parameters`: with their padding. What is passed outlives this object. Null where the ranks
  /// share no optimizer. Not collective.
  static std::unique_ptr<GpuShards> make(const RunPlan& plan, allreduce::Communicator& gpus,
                                         std::span<const std::uint64_t> bounds,
                                         std::size_t first_gradient, View parameters);

  /// The shards of all ranks, for TrainingState.
  const Shards& shards() const { return shards_; }
  /// This rank's part. This object outlives its users.
  compute::GpuPart part();
  /// Brings all ranks' parts of the parameters to all. Collective.
  void gather();
  /// How much of the optimizer's state this rank has, for the user.
  std::string note(std::size_t slots) const;

 private:
  GpuShards(allreduce::Communicator& gpus, std::span<const std::uint64_t> bounds,
            std::size_t first_gradient, View parameters, std::size_t count);

  allreduce::Communicator& gpus_;
  const View parameters_;
  const std::size_t count_;     // without padding
  std::vector<Range> buckets_;  // of the parameters, with padding, ascending
  Shards shards_;
};

}  // namespace ringtrain::train
