#pragma once
#include <vector>

#include "ringtrain/compute/backend.hpp"
#include "train/plan/run_context.hpp"

namespace ringtrain::train {

/// An evaluation program that may see each image several times, mirrored and shifted (test-time
/// augmentation): what it says of the image is the mean of the views' logits.
class ViewedProgram {
 public:
  /// `program`, which is of an evaluation, outlives it.
  ViewedProgram(compute::Program& program, model::TestViews views);

  /// Loss and hits are those of the mean.
  compute::StepResult run(const Batch& batch);
  /// Of the batch of the last run(), samples x classes.
  std::vector<float> logits() const { return views_.size() == 1 ? program_.logits() : mean_; }

 private:
  struct View {
    bool mirrored;
    int shift;  ///< down and to the right, in pixels; reflected at the border
    float weight;
  };
  static std::vector<View> views_of(model::TestViews views);
  void show(const Batch& batch, const View& view);

  compute::Program& program_;
  const std::vector<View> views_;
  Batch seen_;
  std::vector<float> mean_;
};

}  // namespace ringtrain::train
