#pragma once
#include <string>

#include "bench/complaints/stream.hpp"
#include "bench/complaints/variables.hpp"
#include "train/plan/run_plan.hpp"

namespace ringtrain {

/// When a worker gets weights: all of them once its step is in them, as a TensorFlow session does,
/// or each as soon as its own gradient is in it, so that both directions of a link carry at once.
enum class Answers { by_step, by_variable };

struct ServerSettings {
  int workers = 1;
  Updates updates = Updates::asynchronous;
  Answers answers = Answers::by_step;
  std::string save_to = {};  ///< the file that a worker's wish and the end of training save to
};

/// What a worker says first.
struct Greeting {
  int worker = 0;
};

/// What follows the gradients of a step.
struct EndOfStep {
  bool save = false;
};

/// Serves plan.options.steps steps of each worker: it gets all weights, from the last variable to
/// the first, then sends its gradients in the same order and EndOfStep. For each worker one thread
/// receives and updates, and one sends. A failure in one of them ends the process.
void serve(const train::RunPlan& plan, const ServerSettings& settings, const Door& door);

}  // namespace ringtrain
