#include <tuple>

#include "compute/cuda/bind/bind.hpp"
#include "compute/cuda/kernels/arguments/batch_norm.hpp"
#include "compute/cuda/runtime/runtime.hpp"
#include "ringtrain/base/error.hpp"

namespace ringtrain::compute::cuda {
namespace {

kernels::BatchNormApplyOperands apply(TensorId x, TensorId y, const AppliedNorm& how, Binder& b) {
  return {.element = b.element(),
          .pixels = b.pixels(x),
          .channels = b.channels(x),
          .x = b.at(x),
          .y = b.at(y),
          .y_pitch = b.pitch(y),
          .scale = b.vector(how.scale),
          .bias = b.vector(how.bias),
          .residual = b.at(how.residual),
          .residual_scale = b.vector(how.residual_scale),
          .residual_bias = b.vector(how.residual_bias),
          .then = how.then,
          .x_pitch = b.pitch(x)};
}

Action evaluation(const BatchNormForward& s, Binder& b) {
  const Binder::Moments to = b.moments(s.beta);
  kernels::BatchNormApplyOperands applied =
      apply(s.x, s.y, {.residual = s.residual, .then = s.then}, b);
  std::tie(applied.scale, applied.bias) = std::tie(to.scale, to.bias);
  const kernels::BatchNormEvaluationOperands operands{.channels = b.channels(s.x),
                                                      .statistics = b.statistics(s.statistics),
                                                      .gamma = b.parameters(s.gamma),
                                                      .beta = b.parameters(s.beta),
                                                      .epsilon = s.epsilon,
                                                      .scale = to.scale,
                                                      .bias = to.bias};
  return [&b, operands, applied] {
    kernels::batch_norm_evaluation(operands, b.stream());
    kernels::batch_norm_apply(applied, b.stream());
  };
}

// All that a finalize of BatchNormForward and of BatchNormFinalize have in common.
template <class Kind>
kernels::BatchNormFinalizeOperands finalize(const Kind& s, std::size_t channels, Binder& b) {
  kernels::BatchNormFinalizeOperands operands{};
  operands.channels = channels;
  operands.gamma = b.parameters(s.gamma);
  operands.beta = b.parameters(s.beta);
  operands.epsilon = s.epsilon;
  operands.unbiased = s.unbiased;
  operands.batch_statistics = b.batch_statistics(s.statistics);
  return operands;
}

void reserve_sums(TensorId x, Binder& b) {
  b.reserve(kernels::batch_norm_workspace(b.pixels(x), b.channels(x)));
}

const float* pixels_on_gpu(TensorId x, Binder& b) {
  const auto pixels = static_cast<float>(b.pixels(x));
  std::byte* place = b.keep(sizeof pixels);
  write_and_wait(place, &pixels, sizeof pixels);
  return reinterpret_cast<float*>(place);
}

void copy_one(const float* from, float* to, const Binder& b) {
  check(cudaMemcpyAsync(to, from, sizeof *to, cudaMemcpyDeviceToDevice, b.stream()),
        "cudaMemcpyAsync");
}

// The number of pixels travels behind their sums.
void sum_over_ranks(float* sums, std::size_t channels, const float* own_count, float* ranks_count,
                    const Binder& b) {
  float* count = sums + 2 * channels;
  copy_one(own_count, count, b);
  b.sum_over_ranks({sums, 2 * channels + 1});
  copy_one(count, ranks_count, b);
}

void run(kernels::BatchNormBackwardReduceOperands operands, const Binder& b) {
  operands.workspace = b.floats();
  kernels::batch_norm_backward_reduce(operands, b.stream());
  if (!operands.ranks_sums) return;
  b.sum_over_ranks({operands.ranks_sums, 2 * operands.channels});
  kernels::batch_norm_backward_coefficients(operands, b.stream());
}

}  // namespace

kernels::BatchNormBackwardReduceOperands reduce_operands(const BatchNormSums& how, Binder& b) {
  if (how.residual != no_tensor)
    throw Error("bind BatchNormSums", "their mask would need the residual");
  return {.element = b.element(),
          .pixels = b.pixels(how.x),
          .channels = b.channels(how.x),
          .count = how.count,
          .dy = nullptr,
          .skip = b.at(how.skip),
          .x = b.at(how.x),
          .y = b.at(how.y),
          .g = b.at(how.g),
          .then = how.then,
          .scale = b.vector(how.scale),
          .bias = b.vector(how.bias),
          .mean = b.vector(how.mean),
          .inverse_deviation = b.vector(how.inverse_deviation),
          .gamma = b.parameters(how.gamma),
          .dgamma = b.gradients(how.gamma),
          .dbeta = b.gradients(how.beta),
          .g_scale = b.vector(how.g_scale),
          .x_scale = b.vector(how.x_scale),
          .shift = b.vector(how.shift),
          .workspace = nullptr,
          .x_pitch = b.pitch(how.x)};
}

template <>
Action bind(const BatchNormForward& s, Binder& b) {
  if (!s.training) return evaluation(s, b);
  const std::size_t channels = b.channels(s.x);
  const Binder::Moments to = b.moments(s.beta);
  kernels::BatchNormFinalizeOperands finish = finalize(s, channels, b);
  auto* sums = reinterpret_cast<float*>(b.keep((2 * channels + 1) * sizeof(float)));
  finish.count = b.pixels(s.x);
  finish.sums = sums;
  finish.scale = to.scale;
  finish.bias = to.bias;
  finish.mean = to.mean;
  finish.inverse_deviation = to.inverse_deviation;
  kernels::BatchNormApplyOperands applied =
      apply(s.x, s.y, {.residual = s.residual, .then = s.then}, b);
  std::tie(applied.scale, applied.bias) = std::tie(to.scale, to.bias);
  reserve_sums(s.x, b);
  const float* own_count = s.all_ranks ? pixels_on_gpu(s.x, b) : nullptr;
  finish.ranks_count = s.all_ranks ? to.ranks_count : nullptr;
  return [&b, sums, finish, applied, own_count, ranks_count = to.ranks_count] {
    kernels::batch_norm_statistics(applied.element, applied.pixels, applied.channels, applied.x,
                                   applied.x_pitch, sums, b.floats(), b.stream());
    if (own_count) sum_over_ranks(sums, finish.channels, own_count, ranks_count, b);
    kernels::batch_norm_finalize(finish, b.stream());
    kernels::batch_norm_apply(applied, b.stream());
  };
}

// g, the masked sum of the gradients, is handed on in dresidual, or where dx will be.
template <>
Action bind(const BatchNormBackward& s, Binder& b) {
  const std::size_t channels = b.channels(s.x);
  const Binder::Moments from = b.moments(s.beta);
  auto* coefficients = reinterpret_cast<float*>(b.keep(3 * channels * sizeof(float)));
  kernels::BatchNormBackwardReduceOperands reduced =
      reduce_operands({.x = s.x,
                       .y = s.y,
                       .skip = s.dy2,
                       .g = s.dresidual != no_tensor ? s.dresidual : s.dx,
                       .then = s.then,
                       .gamma = s.gamma,
                       .beta = s.beta,
                       .count = b.pixels(s.x)},
                      b);
  if (s.all_ranks) {
    reduced.ranks_sums = reinterpret_cast<float*>(b.keep(2 * channels * sizeof(float)));
    reduced.ranks_count = from.ranks_count;
  }
  reduced.dy = b.at(s.dy);
  reduced.dy_pitch = b.pitch(s.dy);
  reduced.scale = from.scale;
  reduced.bias = from.bias;
  reduced.mean = from.mean;
  reduced.inverse_deviation = from.inverse_deviation;
  reduced.g_scale = coefficients;
  reduced.x_scale = coefficients + channels;
  reduced.shift = coefficients + 2 * channels;
  const kernels::BatchNormBackwardApplyOperands applied{
      b.element(), b.pixels(s.x),   channels,        reduced.g,    reduced.x,
      b.at(s.dx),  reduced.g_scale, reduced.x_scale, reduced.shift};
  reserve_sums(s.x, b);
  return [&b, reduced, applied] {
    run(reduced, b);
    kernels::batch_norm_backward_apply(applied, b.stream());
  };
}

// The forward step left gamma / sqrt(variance + epsilon) in `scale`.
template <>
Action bind(const BatchNormInputGradient& s, Binder& b) {
  const std::size_t channels = b.channels(s.dy);
  const auto* const none =
      reinterpret_cast<const float*>(b.keep(channels * sizeof(float)));  // zeros
  const kernels::BatchNormBackwardApplyOperands operands{b.element(),
                                                         b.pixels(s.dy),
                                                         channels,
                                                         b.at(s.dy),
                                                         b.at(s.dy),
                                                         b.at(s.dx),
                                                         b.moments(s.beta).scale,
                                                         none,
                                                         none,
                                                         b.pitch(s.dy),
                                                         b.pitch(s.dy),
                                                         b.pitch(s.dx)};
  return [&b, operands] { kernels::batch_norm_backward_apply(operands, b.stream()); };
}

template <>
Action bind(const BatchNormStatistics& s, Binder& b) {
  reserve_sums(s.x, b);
  return [&b, pixels = b.pixels(s.x), channels = b.channels(s.x), x = b.at(s.x),
          pitch = b.pitch(s.x), sums = b.vector(s.sums)] {
    kernels::batch_norm_statistics(b.element(), pixels, channels, x, pitch, sums, b.floats(),
                                   b.stream());
  };
}

template <>
Action bind(const BatchNormFinalize& s, Binder& b) {
  const auto channels = static_cast<std::size_t>(b.schedule().vectors[s.scale]);
  kernels::BatchNormFinalizeOperands operands = finalize(s, channels, b);
  operands.count = s.count;
  operands.sums = b.vector(s.sums) + s.first;
  operands.sums_pitch = static_cast<std::size_t>(b.schedule().vectors[s.sums]) / 2;
  operands.scale = b.vector(s.scale);
  operands.bias = b.vector(s.bias);
  operands.mean = b.vector(s.mean);
  operands.inverse_deviation = b.vector(s.inverse_deviation);
  if (b.element() != Element::fp32) {
    operands.narrow = b.element();
    operands.narrow_scale = b.narrow(s.scale);
    operands.narrow_bias = b.narrow(s.bias);
  }
  operands.lowered_beta = b.lowered_beta(s.beta);
  return [&b, operands] { kernels::batch_norm_finalize(operands, b.stream()); };
}

template <>
Action bind(const BatchNormApply& s, Binder& b) {
  return [&b, operands = apply(s.x, s.y, s.how, b)] {
    kernels::batch_norm_apply(operands, b.stream());
  };
}

template <>
Action bind(const BatchNormBackwardReduce& s, Binder& b) {
  kernels::BatchNormBackwardReduceOperands operands = reduce_operands(s.how, b);
  operands.dy = b.at(s.dy);
  operands.dy_pitch = b.pitch(s.dy);
  reserve_sums(s.how.x, b);
  return [&b, operands] { run(operands, b); };
}

template <>
Action bind(const BatchNormBackwardApply& s, Binder& b) {
  const kernels::BatchNormBackwardApplyOperands operands{
      b.element(),       b.pixels(s.x), b.channels(s.x),     b.at(s.g),
      b.at(s.x),         b.at(s.dx),    b.vector(s.g_scale), b.vector(s.x_scale),
      b.vector(s.shift), b.pitch(s.g),  b.pitch(s.x),        b.pitch(s.dx)};
  if (s.dx2 == no_tensor)
    return [&b, operands] { kernels::batch_norm_backward_apply(operands, b.stream()); };
  kernels::BatchNormBackwardApplyOperands second = operands;
  second.x = b.at(s.x2);
  second.dx = b.at(s.dx2);
  second.g_scale = b.vector(s.g_scale2);
  second.x_scale = b.vector(s.x_scale2);
  second.shift = b.vector(s.shift2);
  return [&b, operands, second] {
    kernels::batch_norm_backward_apply_pair(operands, second, b.stream());
  };
}

}  // namespace ringtrain::compute::cuda
