#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ringtrain/allreduce/mpi/session.hpp"
#include "ringtrain/compute/backend.hpp"
#include "ringtrain/compute/gpu.hpp"
#include "ringtrain/model/passes.hpp"
#include "train/plan/run_plan.hpp"
#include "train/sums/reduction_buffer.hpp"

namespace ringtrain::train {

/// The plan's network for this rank's batch, or for so many `images`, fused as `supports`, or the
/// backend, and --fusion allow it.
compute::Schedule make_schedule(const RunPlan& plan, const model::Supports& supports,
                                model::Mode mode, std::optional<int> images = {});
compute::Schedule make_schedule(const RunPlan& plan, const compute::Backend& backend,
                                model::Mode mode, std::optional<int> images = {});

/// The schedule of training with those fused steps only that every rank's GPU computes rightly.
/// What any rank refuses is added to `refused`. Collective.
compute::Schedule checked_schedule(const RunPlan& plan, compute::GpuBackend& backend,
                                   const allreduce::MpiSession& session,
                                   std::vector<compute::GpuRefusal>& refused);

/// The plan's first parameters and running statistics, in the host's memory. `progress` may be
/// null.
struct InitialValues {
  std::vector<float> parameters, statistics;
};
InitialValues initial_values(const RunPlan& plan, WorkProgress* progress = nullptr);

/// Where gradients become final in a step of `training`, as places of `sums`; without the front.
std::vector<std::size_t> final_places(const compute::Schedule& training,
                                      const ReductionBuffer& sums);

/// How long before the end of the backward pass each bucket between `bounds` is final, in the order
/// of the sums, as a share of that pass: as if all its steps took the same time.
std::vector<double> final_leads(const compute::Schedule& training, const ReductionBuffer& sums,
                                std::span<const std::uint64_t> bounds);

}  // namespace ringtrain::train
