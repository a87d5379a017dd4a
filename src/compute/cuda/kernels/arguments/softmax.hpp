#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "ringtrain/base/memory/view.hpp"

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
  void* dlogits;  ///< null in evaluation; may be `logits`; what pads a row becomes zero
  const std::int32_t* labels;  ///< a class, or -1: counts for nothing
  float smoothing, weight;
  bool counts;
  const float *sample_weight, *loss_scale;  ///< device scalars that dlogits is multiplied by
  SampleLoss* workspace;                    ///< `batch` of them
  LossTotals* totals;
};
/// The SoftmaxCrossEntropy step, sums in a fixed order. All pointers are the device's; `loss_scale`
/// may be null for 1. Queues on `stream` and returns; throws Error when a launch fails.
void softmax_cross_entropy(const SoftmaxOperands& operands, cudaStream_t stream);

}  // namespace ringtrain::compute::cuda::kernels
