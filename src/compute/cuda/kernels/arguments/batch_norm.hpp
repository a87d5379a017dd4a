#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>

#include "ringtrain/base/memory/view.hpp"
#include "ringtrain/compute/operation.hpp"

// Training BatchNorm in pieces. Activations are NHWC, pixels x channels, of `element`; a tensor
// with a pitch, the elements from pixel to pixel, may be a slice of a wider one; pitch 0: dense.
// The vectors are fp32, one number a channel, on the device; null where optional and not wanted.
// All calls queue on `stream` and return; they throw Error when a launch fails.

// Two BatchNorms whose results are added: the first block of a ResNet stage.

namespace ringtrain::compute::cuda::kernels {

/// Bytes of the workspace that statistics and backward reduce need. It is free for the next call on
/// the same stream.
std::size_t batch_norm_workspace(std::size_t pixels, std::size_t channels);

/// sums[c] = sum of x, sums[channels + c] = sum of x^2, over all pixels. The same bits every time.
void batch_norm_statistics(Element element, std::size_t pixels, std::size_t channels, const void* x,
                           std::size_t x_pitch, float* sums, float* workspace, cudaStream_t stream);

struct BatchNormFinalizeOperands {
  std::size_t channels, count;  ///< `count`: pixels summed
  const float *sums, *gamma /* optional: ones */, *beta;
  float epsilon;
  bool unbiased;            ///< the variance published is times count / (count - 1)
  float* batch_statistics;  ///< means, then variances
  float *scale, *bias;      ///< y = x * scale + bias
  float *mean, *inverse_deviation;
  Element narrow = Element::fp32;
  void *narrow_scale = nullptr, *narrow_bias = nullptr;  ///< optional: scale and bias, rounded to
                                                         ///< `narrow`, for cuDNN's prologues
  std::size_t sums_pitch = 0;          ///< from a channel's sum to that of squares; 0: `channels`
  const float* ranks_count = nullptr;  ///< optional, on the device: in place of `count`
  float* lowered_beta = nullptr;       ///< optional: beta - 1e-30 (LoweredBetaOperand)
};
/// From sums to what BatchNorm multiplies and adds, and what its backward wants.
void batch_norm_finalize(const BatchNormFinalizeOperands& operands, cudaStream_t stream);

struct BatchNormEvaluationOperands {
  std::size_t channels;
  const float *statistics /* running means, then variances */, *gamma /* optional */, *beta;
  float epsilon;
  float *scale, *bias;
  Element narrow = Element::fp32;
  void *narrow_scale = nullptr, *narrow_bias = nullptr;  ///< optional: scale and bias, rounded to
                                                         ///< `narrow`, for cuDNN's prologues
};
/// scale and bias from running statistics, for batch_norm_apply.
void batch_norm_evaluation(const BatchNormEvaluationOperands& operands, cudaStream_t stream);

struct BatchNormApplyOperands {
  Element element;
  std::size_t pixels, channels;
  const void* x;
  void* y;  ///< may be x
  std::size_t y_pitch;
  const float *scale, *bias;
  const void* residual;                         ///< optional, dense
  const float *residual_scale, *residual_bias;  ///< optional, both or none
  Activation then;
  std::size_t x_pitch = 0;
};
/// y = then(x * scale + bias + residual * residual_scale + residual_bias)
void batch_norm_apply(const BatchNormApplyOperands& operands, cudaStream_t stream);

struct BatchNormBackwardReduceOperands {
  Element element;
  std::size_t pixels, channels, count;  ///< `count`: pixels of the statistics
  const void *dy, *skip /* optional */, *x, *y /* optional */;
  void* g;  ///< optional; may be dy or skip
  Activation then;
  const float *scale, *bias, *mean, *inverse_deviation, *gamma /* optional: ones */;
  float *dgamma /* optional */, *dbeta;
  float *g_scale, *x_scale, *shift;
  float* workspace;
  std::size_t dy_pitch = 0, x_pitch = 0;
  /// Optional: takes the sums of g and of g * (x - mean) * inverse_deviation; the coefficients wait
  /// for batch_norm_backward_coefficients.
  float* ranks_sums = nullptr;
  const float* ranks_count = nullptr;  ///< then, on the device: pixels of the statistics
};
/// g = (dy + skip?) * then', whose slope follows from y, or without y from x * scale + bias. dbeta
/// = sum of g, dgamma = sum of g * (x - mean) * inverse_deviation, and the coefficients of
/// batch_norm_backward_apply. The same bits every time.
void batch_norm_backward_reduce(const BatchNormBackwardReduceOperands& operands,
                                cudaStream_t stream);

/// The coefficients from `ranks_sums`, once those are summed over all ranks.
void batch_norm_backward_coefficients(const BatchNormBackwardReduceOperands& operands,
                                      cudaStream_t stream);

struct BatchNormBackwardApplyOperands {
  Element element;
  std::size_t pixels, channels;
  const void *g, *x;
  void* dx;  ///< may be g or x
  const float *g_scale, *x_scale, *shift;
  std::size_t g_pitch = 0, x_pitch = 0, dx_pitch = 0;
};
/// dx = g_scale * g + x_scale * x + shift
void batch_norm_backward_apply(const BatchNormBackwardApplyOperands& operands, cudaStream_t stream);

/// batch_norm_backward_apply of both, which have the same `g` and extents; reads g once. Only the
/// dx of one of them may be g; that of the other, and either x, are other memory. Queues on
/// `stream` and returns; throws Error when the launch fails.
void batch_norm_backward_apply_pair(const BatchNormBackwardApplyOperands& first,
                                    const BatchNormBackwardApplyOperands& second,
                                    cudaStream_t stream);

}  // namespace ringtrain::compute::cuda::kernels
