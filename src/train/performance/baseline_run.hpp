#pragma once
#include "ringtrain/host/signals.hpp"
#include "ringtrain/metrics/scaling/speedup.hpp"
#include "train/engine/engine.hpp"
#include "train/plan/run_context.hpp"

namespace ringtrain::train {

/// Measures what the ranks gain over one: rank 0 trains alone, with its own threads and batch, then
/// all train together, in windows that alternate within this job. Puts the
/// engine's state back as it was: the training that follows is the same with and without. Every
/// rank gets the comparison, or nullopt when one was asked to stop meanwhile. Collective.
std::optional<metrics::ScalingResult> measure_baseline(const RunContext& run,
                                                       TrainingEngine& engine,
                                                       const host::StopSignals& stop);

}  // namespace ringtrain::train
