#pragma once
#include <string>

#include "ringtrain/base/work_progress.hpp"
#include "train/plan/run_plan.hpp"

namespace ringtrain::train {

/// What `--plan` prints about one rank's step of training the network: memory and, for a GPU, bytes
/// moved an image, fusions, the most that memory and arithmetic allow, and the step time they
/// predict. Needs no data, no other rank and no GPU. Throws Error (usage) when the build cannot
/// plan for the device.
std::string plan_report(const ModelSource& source, const config::Options& options);

/// Bytes that a rank's training takes on CPUs.
struct RankMemory {
  double activations = 0, workspace = 0, evaluation = 0, state = 0, batches = 0;
  double slots = 0;  ///< for checkpoints, on rank 0
  double program = 0;
  double total() const {
    return activations + workspace + evaluation + state + batches + slots + program;
  }
};
/// What each rank of `plan` takes on CPUs, as plan_report() says it.
RankMemory rank_memory(const RunPlan& plan, WorkProgress* progress = nullptr);
/// Bytes of the tensors in one checkpoint.
double checkpoint_bytes(const RunPlan& plan);

}  // namespace ringtrain::train
