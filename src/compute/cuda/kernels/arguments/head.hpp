#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>

#include "compute/cuda/kernels/arguments/softmax.hpp"

// What the ranks sum in a step besides gradients: a head in front of them in the summed buffer,
// laid out as the host's (train/step_sums.hpp). `step_results` floats begin with a StepHead;
// BatchNorm's statistics follow, padded with zeros to where gradients start. All pointers are the
// device's. All calls queue on `stream` and return; they throw Error when a launch fails.
namespace ringtrain::compute::cuda::kernels {

inline constexpr std::size_t step_results = 16;

/// Sums over ranks and micro-steps.
struct StepHead {
  float loss, top1;  ///< means over the samples, once summed
  float stop, signalled, signal;
};

/// What this rank asks of the others: to stop after this step, and the signal that made it ask.
/// `signalled` is 1 with a signal, else both are 0.
struct StepFlags {
  float stop, signalled, signal;
};

/// Zeroes `floats`, the whole head, but for this rank's flags.
void begin_head(float* head, std::size_t floats, const StepFlags* flags, cudaStream_t stream);

/// Adds a micro-step: its totals times `sample_weight` (1 / samples of all ranks and micro-steps),
/// and its `statistics` numbers of batch statistics times `share`, its part of those samples.
void add_to_head(float* head, std::size_t statistics, const LossTotals* totals,
                 const float* batch_statistics, const float* sample_weight, const float* share,
                 cudaStream_t stream);

}  // namespace ringtrain::compute::cuda::kernels
