#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ringtrain/allreduce/communicator/communicator.hpp"
#include "ringtrain/allreduce/mpi/session.hpp"
#include "ringtrain/allreduce/ring/tuning.hpp"
#include "ringtrain/monitor/progress.hpp"
#include "train/plan/run_plan.hpp"

namespace ringtrain::train {

/// How the ring between hosts cuts its messages, as the plan says or as the links are measured;
/// nothing where no ring joins hosts. Collective.
std::optional<allreduce::RingChoice> ring_of(const RunPlan& plan,
                                             const allreduce::MpiSession& session);

/// What the user is told of the sums.
std::vector<std::string> notes_of_sums(const RunPlan& plan, const allreduce::MpiSession& session,
                                       const std::optional<allreduce::RingChoice>& ring);

/// What sums gradients over the ranks, as `ring` says. `crowded`: as CommunicatorOptions has it;
/// `threads`: as CompressedGradients has it. What is passed outlives it; its timeline shows the
/// sums. Collective.
std::unique_ptr<allreduce::Communicator> make_gradient_sums(
    const RunPlan& plan, const allreduce::MpiSession& session,
    const std::optional<allreduce::RingChoice>& ring, bool crowded, monitor::Progress& progress,
    int threads = 1);

/// What sums the statistics of BatchNorms that span ranks; null where none do. Beside the
/// gradients' sums, which may be under way on a thread of their own: small sums that forward and
/// backward wait for neither stand in line behind those nor wait for that thread. Collective.
std::unique_ptr<allreduce::Communicator> make_statistics_sums(const RunPlan& plan,
                                                              const allreduce::MpiSession& session,
                                                              bool crowded,
                                                              monitor::Progress& progress);

}  // namespace ringtrain::train
