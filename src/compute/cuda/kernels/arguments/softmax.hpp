#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "ringtrain/base/batch.hpp"
#include "ringtrain/base/memory/view.hpp"
#include "ringtrain/compute/step.hpp"

namespace ringtrain::compute::cuda::kernels {

/// What a batch came to, in device memory. Zero it when a step begins; heads add to it.
struct LossTotals {
  double loss;
  std::int32_t samples, top1, top5;
};

/// One sample's part of LossTotals.
struct SampleLoss {
  float loss;
  std::int32_t samples, top1, top5;
};

struct SoftmaxOperands {
  Element element;
  std::size_t batch;
  int classes, pitch;  ///< `pitch`: elements from sample to sample, at least `classes`
  const void* logits;
  void* dlogits;          ///< null in evaluation; may be `logits`; what pads a row becomes zero
  const Sample* samples;  ///< `batch` of them
  float smoothing, weight;
  bool counts;
  const float *sample_weight, *loss_scale;  ///< device scalars that dlogits is multiplied by
  SampleLoss* workspace;                    ///< `batch` of them
  LossTotals* totals;
  const float* class_weights = nullptr;  ///< `classes` of them on the device; null: 1 each
  bool binary = false;                   ///< of a sigmoid for each class
  SoftmaxCrossEntropy::Binary how = {};
};
/// The SoftmaxCrossEntropy step, sums in a fixed order. All pointers are the device's; `loss_scale`
/// may be null for 1. Queues on `stream` and returns; throws Error when a launch fails.
void softmax_cross_entropy(const SoftmaxOperands& operands, cudaStream_t stream);

// What the ranks sum in a step besides gradients: a head in front of them in the summed buffer,
// laid out as the host's (train/sums/reduction_buffer.hpp). `step_results` floats begin with a
// StepHead; BatchNorm's statistics follow, padded with zeros to where gradients start. All pointers
// are the device's. All calls queue on `stream` and return; they throw Error when a launch fails.

inline constexpr std::size_t step_results = 16;

/// Sums over ranks and micro-steps.
struct StepHead {
  float loss, top1;  ///< means over the samples, once summed
  float stop, signalled, signal;
  float save, measure_links, unreadable;
  float squares, found_inf;  ///< put_part()'s, where ranks share the optimizer
};

/// What this rank asks of the others (host::StepRequest), 1 or 0 each but for the signal's number.
struct StepFlags {
  float stop, signalled, signal;
  float save, measure_links, unreadable;
};

/// Zeroes `floats`, the whole head, but for this rank's flags.
void begin_head(float* head, std::size_t floats, const StepFlags* flags, cudaStream_t stream);

/// Adds a micro-step: its totals times `sample_weight` (1 / samples of all ranks and micro-steps),
/// and its `statistics` numbers of batch statistics times `share`, its part of those samples.
void add_to_head(float* head, std::size_t statistics, const LossTotals* totals,
                 const float* batch_statistics, const float* sample_weight, const float* share,
                 cudaStream_t stream);

}  // namespace ringtrain::compute::cuda::kernels
