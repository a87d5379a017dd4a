#pragma once
#include <optional>
#include <tuple>

#include "ringtrain/compute/operation.hpp"

namespace ringtrain::compute {

/// y = then((x - mean) / sqrt(variance + epsilon) * gamma? + beta + residual?).
/// Training: mean and variance (biased) are the batch's; they are also written to `statistics` (C
/// means, then C variances) of Buffers::batch_statistics, the variance times n/(n-1) when
/// `unbiased`. Evaluation: both are read from `statistics` of Buffers::statistics. `all_ranks`: the
/// batch is that of all ranks together, by Program::SumOverRanks.
struct BatchNormForward {
  TensorId x, y, residual = no_tensor;
  std::optional<ParameterRange> gamma = std::nullopt;
  ParameterRange beta;
  StatisticsRange statistics;
  float epsilon = 1e-5f;
  Activation then = Activation::none;
  bool unbiased = true, training = true, all_ranks = false;
  static constexpr const char* name = "BatchNormForward";
  static constexpr auto reads = std::tuple(&BatchNormForward::x, &BatchNormForward::residual);
  static constexpr auto writes = std::tuple(&BatchNormForward::y);
};
/// The gradient of the BatchNormForward with the same `x`. With g = (dy + dy2?)
/// * then': writes dgamma, dbeta, dx, and g itself to `dresidual` where that is asked for. `y` is
/// the forward result, from which the slope of `then` follows; it is no_tensor without `then`, or
/// when there was no residual, so that the slope follows from x. Batch mean and variance are those
/// of the forward step. `all_ranks`, as there: dx is the gradient through the statistics of all
/// ranks, but dgamma and dbeta are this rank's part of the sum over all.
struct BatchNormBackward {
  TensorId x, y = no_tensor, dy, dy2 = no_tensor, dx, dresidual = no_tensor;
  std::optional<ParameterRange> gamma = std::nullopt;
  ParameterRange beta;
  float epsilon = 1e-5f;
  Activation then = Activation::none;
  bool all_ranks = false;
  static constexpr const char* name = "BatchNormBackward";
  static constexpr auto reads = std::tuple(&BatchNormBackward::x, &BatchNormBackward::y,
                                           &BatchNormBackward::dy, &BatchNormBackward::dy2);
  static constexpr auto writes = std::tuple(&BatchNormBackward::dx, &BatchNormBackward::dresidual);
  static constexpr auto gradients = std::tuple(&BatchNormBackward::beta, &BatchNormBackward::gamma);
};

/// dx = dy * gamma? / sqrt(variance + epsilon), by channel: the gradient of the BatchNormForward of
/// running statistics with the same `beta`, without what that has of `then` and `residual`.
struct BatchNormInputGradient {
  TensorId dy, dx;
  std::optional<ParameterRange> gamma = std::nullopt;
  ParameterRange beta;
  StatisticsRange statistics;
  float epsilon = 1e-5f;
  static constexpr const char* name = "BatchNormInputGradient";
  static constexpr auto reads = std::tuple(&BatchNormInputGradient::dy);
  static constexpr auto writes = std::tuple(&BatchNormInputGradient::dx);
};

/// What a step reads in place of a tensor x: then(x * scale + bias + residual?), by channel; that
/// is a BatchNorm whose batch statistics are known. The residual may be scaled and shifted likewise
/// (the first block of a ResNet stage): then it has both vectors.
struct AppliedNorm {
  VectorId scale = no_vector, bias = no_vector;
  TensorId residual = no_tensor;
  VectorId residual_scale = no_vector, residual_bias = no_vector;
  Activation then = Activation::none;
  TensorId y = no_tensor;  ///< where the value is also written
  static constexpr auto reads = std::tuple(&AppliedNorm::residual);
  static constexpr auto writes = std::tuple(&AppliedNorm::y);
};

/// What follows the gradient dy of a BatchNorm's (activated) output. With g = (dy + skip?)
/// * then': writes g, dbeta = sum of g and, where there is a gamma,
/// dgamma = sum of g * (x - mean) * inverse_deviation, and leaves the coefficients of
/// BatchNormBackwardApply in g_scale, x_scale and shift. The slope follows from `y`, the activated
/// output, or where that is no_tensor from x * scale + bias + residual?, with the residual as
/// in AppliedNorm. `count` is the pixels of x.
struct BatchNormSums {
  TensorId x, y = no_tensor, skip = no_tensor, g = no_tensor;
  Activation then = Activation::none;
  std::optional<ParameterRange> gamma = std::nullopt;
  ParameterRange beta;
  std::size_t count = 0;
  VectorId scale = no_vector, bias = no_vector, mean = no_vector, inverse_deviation = no_vector;
  VectorId g_scale = no_vector, x_scale = no_vector, shift = no_vector;
  TensorId residual = no_tensor;
  VectorId residual_scale = no_vector, residual_bias = no_vector;
  static constexpr auto reads = std::tuple(&BatchNormSums::x, &BatchNormSums::y,
                                           &BatchNormSums::skip, &BatchNormSums::residual);
  static constexpr auto writes = std::tuple(&BatchNormSums::g);
  static constexpr auto gradients = std::tuple(&BatchNormSums::beta, &BatchNormSums::gamma);
};

// The training BatchNorm in pieces, so that convolutions can take them in.

/// sums (2C) = (sum of x, sum of x^2) over all pixels of the batch.
struct BatchNormStatistics {
  TensorId x;
  VectorId sums = no_vector;
  static constexpr const char* name = "BatchNormStatistics";
  static constexpr auto reads = std::tuple(&BatchNormStatistics::x);
  static constexpr auto writes = std::tuple();
};
/// From the `sums` over `count` pixels, of which its channels are those from `first` on:
/// inverse_deviation = 1 / sqrt(variance + epsilon),
/// scale = gamma? * inverse_deviation, bias = beta - mean * scale. Also writes the batch
/// statistics, as BatchNormForward does.
struct BatchNormFinalize {
  VectorId sums = no_vector;
  std::size_t count = 0;
  std::optional<ParameterRange> gamma = std::nullopt;
  ParameterRange beta;
  StatisticsRange statistics;
  float epsilon = 1e-5f;
  bool unbiased = true;
  VectorId scale = no_vector, bias = no_vector, mean = no_vector, inverse_deviation = no_vector;
  int first = 0;
  static constexpr const char* name = "BatchNormFinalize";
  static constexpr auto reads = std::tuple();
  static constexpr auto writes = std::tuple();
};
/// y = how(x). AppliedNorm::y is unused.
struct BatchNormApply {
  TensorId x, y;
  AppliedNorm how;
  static constexpr const char* name = "BatchNormApply";
  static constexpr auto reads = std::tuple(&BatchNormApply::x, &BatchNormApply::how);
  static constexpr auto writes = std::tuple(&BatchNormApply::y);
};
/// BatchNormSums of dy. g is no_tensor where it would be dy itself: without ReLU and skip. It may
/// be the same tensor as dy.
struct BatchNormBackwardReduce {
  TensorId dy;
  BatchNormSums how;
  static constexpr const char* name = "BatchNormBackwardReduce";
  static constexpr auto reads =
      std::tuple(&BatchNormBackwardReduce::dy, &BatchNormBackwardReduce::how);
  static constexpr auto writes = std::tuple();
};
/// dx = g_scale * g + x_scale * x + shift, the gradient of the BatchNorm's input x. dx may be the
/// same tensor as g. Where g is also that of a second BatchNorm (of a projection shortcut), dx2 is
/// made likewise of x2 and the second vectors; dx2 is a tensor of its own, or no_tensor.
struct BatchNormBackwardApply {
  TensorId g, x, dx;
  VectorId g_scale = no_vector, x_scale = no_vector, shift = no_vector;
  TensorId x2 = no_tensor, dx2 = no_tensor;
  VectorId g_scale2 = no_vector, x_scale2 = no_vector, shift2 = no_vector;
  static constexpr const char* name = "BatchNormBackwardApply";
  static constexpr auto reads = std::tuple(&BatchNormBackwardApply::g, &BatchNormBackwardApply::x,
                                           &BatchNormBackwardApply::x2);
  static constexpr auto writes =
      std::tuple(&BatchNormBackwardApply::dx, &BatchNormBackwardApply::dx2);
};

}  // namespace ringtrain::compute
