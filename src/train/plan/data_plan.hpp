#pragma once
#include <optional>

#include "ringtrain/base/work_progress.hpp"
#include "train/plan/model_source.hpp"
#include "train/plan/run_plan.hpp"

namespace ringtrain::train {

/// What the data of a plan are opened with.
struct DataToOpen {
  const ModelSource& source;
  const std::optional<SavedNetwork>& saved;
  const Tell& tell;
  WorkProgress* progress;
};

/// Opens the training data, unless the plan's options say --eval-only, and what is evaluated on.
/// Throws as io::open_dataset() does, and Error(Exit::data) where an evaluation that was asked for
/// has no data.
void open_data(RunPlan& plan, const DataToOpen& how);

/// Fills in what classes weigh in the loss, and tells how --balance draws them. Throws Error
/// (usage) where the file of --class-weights is wrong. From here on the option says which weights
/// they are, not where they lie.
void plan_classes(RunPlan& plan, const Tell& tell);

/// Fills in how the recipe of plan.model cuts images for training and evaluation, and the networks
/// for their sizes. Throws Error (usage) where a size would change the network's parameters.
void plan_images(RunPlan& plan);

}  // namespace ringtrain::train
