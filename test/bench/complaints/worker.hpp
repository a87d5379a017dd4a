#pragma once
#include "bench/complaints/server.hpp"

namespace ringtrain {

struct WorkerSettings {
  int worker = 0;
  Updates updates = Updates::asynchronous;
  double save_every_s = 0;  ///< worker 0, the chief, asks the server to save; 0: never
};

/// Trains plan.options.steps steps with the weights of the server at the other end: the kernels,
/// batches and order of samples are those of rank `worker` of a `train` with the same plan. A
/// step's gradients are sent while the backward pass still runs. Prints a line every --log-every
/// steps, as TensorFlow's example did, and writes `--metrics` records {kind, step, loss,
/// examples_per_second, seconds_per_batch} of this worker's own steps.
void work(const train::RunPlan& plan, const WorkerSettings& settings, const Stream& server);

}  // namespace ringtrain
