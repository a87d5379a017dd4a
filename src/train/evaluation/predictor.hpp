#pragma once
#include "train/engine/engine.hpp"
#include "train/loop/stop_control.hpp"
#include "train/plan/run_context.hpp"

namespace ringtrain::train {

/// Tells the classes of all images that the plan evaluates on, into --output, in their order and
/// the same for any number of ranks: each rank has batches of one size, and rank 0 writes. Ends
/// early where the ranks are asked to stop. An image that cannot be read has a line with the
/// reason; where none can, StopControl::fail() hears of it. Throws Error(Exit::storage) where
/// the output cannot be written. Collective.
void predict(const RunContext& run, TrainingEngine& engine, StopControl& control);

}  // namespace ringtrain::train
