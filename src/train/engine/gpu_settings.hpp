#pragma once
#include <string>
#include <vector>

#include "ringtrain/compute/gpu.hpp"
#include "train/plan/run_plan.hpp"

namespace ringtrain::train {

/// How a plan's steps are trained on a GPU; `averaged_statistics` may be empty.
compute::GpuTrainingSettings training_settings(const RunPlan& plan, View averaged_statistics);
/// Which GPU, and how it computes. Rank 0 shows on standard error how far --autotune is.
compute::GpuSettings gpu_settings(const RunPlan& plan, int device, int rank);
/// What the user is told of a rank's engines, line by line.
std::vector<std::string> engine_lines(const compute::GpuEngines& engines);
/// One fingerprint where all ranks have chosen alike. `ranks` is whole on rank 0 only.
std::string fingerprint_of(const std::vector<std::string>& ranks, const std::string& mine);

}  // namespace ringtrain::train
