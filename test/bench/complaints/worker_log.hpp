#pragma once
#include <cstdint>
#include <fstream>

#include "train/plan/run_plan.hpp"

namespace ringtrain {

/// What one worker tells of its steps: a line in the format of TensorFlow's CIFAR-10 example, and a
/// record of --metrics, each of the mean step since the last one.
class WorkerLog {
 public:
  WorkerLog(const train::RunPlan& plan, int worker);
  void step(std::int64_t step, double loss, double seconds);

 private:
  const train::RunPlan& plan_;
  const int worker_;
  std::ofstream metrics_;
  double seconds_ = 0;  // since the last line
};

}  // namespace ringtrain
