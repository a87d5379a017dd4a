#include <algorithm>

#include "compute/onednn/convolution_operands.hpp"
#include "compute/onednn/descriptors.hpp"
#include "compute/onednn/kernels/amx_weight_gradient.hpp"
#include "compute/onednn/kernels/depthwise/depthwise.hpp"
#include "compute/onednn/kernels/grouped/grouped.hpp"
#include "compute/onednn/phases.hpp"
#include "compute/onednn/plan.hpp"
#include "compute/onednn/winograd/winograd.hpp"

namespace ringtrain::compute::onednn {
namespace {

using dnnl::memory;

constexpr auto direct = dnnl::algorithm::convolution_direct;

dnnl::convolution_forward::primitive_desc forward_desc(const ConvolutionGeometry& g, bool bias,
                                                       Activation then,
                                                       const dnnl::engine& engine) {
  constexpr auto training = dnnl::prop_kind::forward_training;
  dnnl::primitive_attr attr = attributes();
  if (const std::optional<Eltwise> f = eltwise_of(then)) {
    dnnl::post_ops epilogue;
    append_eltwise(epilogue, *f);
    attr.set_post_ops(epilogue);
  }
  const PrimitiveOptions making{engine, attr};
  using Primitive = dnnl::convolution_forward;
  return bias ? forward_descriptor<Primitive>(making, g.sliding, training, direct, g.source, g.any,
                                              g.bias, g.destination)
              : forward_descriptor<Primitive>(making, g.sliding, training, direct, g.source, g.any,
                                              g.destination);
}

// Backward steps' descriptors; oneDNN wants that of the forward step as a hint.
dnnl::convolution_backward_data::primitive_desc input_gradient_desc(const ConvolutionGeometry& g,
                                                                    const dnnl::engine& engine) {
  const auto forward = forward_desc(g, false, Activation::none, engine);
  const dnnl::primitive_attr attr = attributes();
  const PrimitiveOptions making{engine, attr};
  return backward_descriptor<dnnl::convolution_backward_data>(making, g.sliding, forward, direct,
                                                              g.source, g.any, g.destination);
}

dnnl::convolution_backward_weights::primitive_desc weight_gradient_desc(
    const ConvolutionGeometry& g, bool bias, const dnnl::engine& engine) {
  using Primitive = dnnl::convolution_backward_weights;
  const auto forward = forward_desc(g, bias, Activation::none, engine);
  const dnnl::primitive_attr attr = attributes();
  const PrimitiveOptions making{engine, attr, g.breaks_amx};
  if (bias)
    return backward_descriptor<Primitive>(making, g.sliding, forward, direct, g.source,
                                          g.any_gradient, g.bias, g.destination);
  return backward_descriptor<Primitive>(making, g.sliding, forward, direct, g.source,
                                        g.any_gradient, g.destination);
}

memory memory_of(const memory::desc& desc, const Operand& operand, Planner& planner) {
  return operand.scratch ? planner.memory(desc, *operand.scratch)
                         : planner.memory(desc, operand.tensor.data);
}

Action convolve_with(const Weights& weights, BoundPrimitive convolve, Planner& planner) {
  return [format = weights.from_flat(planner), convolve = std::move(convolve)](const Frame& frame) {
    format(frame);
    convolve();
  };
}

// oneDNN 2.6 runs forward steps with AMX faster than input gradients, which are the convolution of
// dy with the filter turned around. Null where more is padded than the filter reaches.
Action plan_as_forward(const Taps& taps, const ConvolutionInputGradient& step, const Operand& dy,
                       const Operand& dx, Planner& planner) {
  const Window& w = step.window;
  const Window turned{w.height,
                      w.width,
                      1,
                      1,
                      w.height - 1 - w.top,
                      w.width - 1 - w.left,
                      w.height - 1 - w.bottom,
                      w.width - 1 - w.right};
  if (std::min({turned.top, turned.left, turned.bottom, turned.right}) < 0) return {};
  const ConvolutionGeometry g(turned, dy.tensor, dx.tensor);
  const auto desc = forward_desc(g, false, Activation::none, planner.engine());
  const Weights weights(desc.weights_desc(), g, taps.turned(w), planner.parameters(step.w), planner,
                        WeightAxes::turned);
  return convolve_with(weights,
                       planner.bind<dnnl::convolution_forward>(
                           desc, {{DNNL_ARG_SRC, memory_of(g.source, dy, planner)},
                                  {DNNL_ARG_WEIGHTS, weights.chosen()},
                                  {DNNL_ARG_DST, memory_of(g.destination, dx, planner)}}),
                       planner);
}

Action plan_input_gradient_of(const Taps& taps, const ConvolutionInputGradient& step,
                              const Operand& dy, const Operand& dx, Planner& planner) {
  using Primitive = dnnl::convolution_backward_data;
  const bool dense =
      step.window.stride_y == 1 && step.window.stride_x == 1 && step.window.is_plain();
  if (dense && dx.tensor.channels_last && has_amx_bf16())
    if (Action as_forward = plan_as_forward(taps, step, dy, dx, planner)) return as_forward;
  const ConvolutionGeometry g(step.window, dx.tensor, dy.tensor);
  const auto desc = input_gradient_desc(g, planner.engine());
  const Weights weights(desc.weights_desc(), g, taps, planner.parameters(step.w), planner);
  return convolve_with(
      weights,
      planner.bind<Primitive>(desc, {{DNNL_ARG_DIFF_DST, memory_of(g.destination, dy, planner)},
                                     {DNNL_ARG_WEIGHTS, weights.chosen()},
                                     {DNNL_ARG_DIFF_SRC, memory_of(g.source, dx, planner)}}),
      planner);
}

Action plan_weight_gradient_of(const Taps& taps, const ConvolutionWeightGradient& step,
                               const Operand& x, const Operand& dy, Planner& planner) {
  if (suits_amx(step, x.tensor, dy.tensor, planner.threads()))
    return plan_amx(taps, step, x, dy, planner);
  using Primitive = dnnl::convolution_backward_weights;
  const ConvolutionGeometry g(step.window, x.tensor, dy.tensor, RowMerging::in_images);
  const auto desc = weight_gradient_desc(g, step.b.has_value(), planner.engine());
  const Weights weights(desc.diff_weights_desc(), g, taps, planner.gradients(step.w), planner);
  const Bias bias(g, planner.gradients(step.b), planner);
  std::vector<std::pair<int, memory>> arguments{
      {DNNL_ARG_SRC, memory_of(g.source, x, planner)},
      {DNNL_ARG_DIFF_DST, memory_of(g.destination, dy, planner)},
      {DNNL_ARG_DIFF_WEIGHTS, weights.chosen()}};
  bias.add_to(arguments, DNNL_ARG_DIFF_BIAS);

  return [correlate = planner.bind<Primitive>(desc, std::move(arguments)),
          format = weights.to_flat(planner), bias](const Frame& frame) {
    correlate();
    format(frame);
    bias.to_flat(frame);
  };
}

}  // namespace

Action plan_forward(const ConvolutionForward& step, const Operand& x, const Operand& y,
                    Planner& planner) {
  const ConvolutionGeometry g(step.window, x.tensor, y.tensor);
  const auto desc = forward_desc(g, step.b.has_value(), step.then, planner.engine());
  const Weights weights(desc.weights_desc(), g, Taps::all(step.window), planner.parameters(step.w),
                        planner);
  const Bias bias(g, planner.parameters(step.b), planner);
  std::vector<std::pair<int, memory>> arguments{
      {DNNL_ARG_SRC, memory_of(g.source, x, planner)},
      {DNNL_ARG_WEIGHTS, weights.chosen()},
      {DNNL_ARG_DST, memory_of(g.destination, y, planner)}};
  bias.add_to(arguments, DNNL_ARG_BIAS);

  return [format = weights.from_flat(planner), bias,
          convolve = planner.bind<dnnl::convolution_forward>(desc, std::move(arguments))](
             const Frame& frame) {
    format(frame);
    bias.from_flat(frame);
    convolve();
  };
}

Action plan_input_gradient(const ConvolutionInputGradient& step, const Operand& dy,
                           const Operand& dx, Planner& planner) {
  return plan_input_gradient_of(Taps::all(step.window), step, dy, dx, planner);
}

Action plan_weight_gradient(const ConvolutionWeightGradient& step, const Operand& x,
                            const Operand& dy, Planner& planner) {
  return plan_weight_gradient_of(Taps::all(step.window), step, x, dy, planner);
}

template <>
Action plan(const ConvolutionForward& step, Planner& planner) {
  const Tensor x = planner.tensor(step.x), y = planner.tensor(step.y);
  const bool depthwise = is_depthwise(step.window, x, y),
             winograd = suits_winograd(step.window, x, y, planner.isa());
  const bool grouped = is_grouped(step.window, x, y);
  if (depthwise && step.then == Activation::none) return plan_depthwise(step, x, y, planner);
  if (grouped && step.then == Activation::none) return plan_grouped(step, x, y, planner);
  if (depthwise || grouped ||
      (!is_relu_or_none(step.then) && (winograd || !eltwise_of(step.then)))) {
    ConvolutionForward bare = step;
    bare.then = Activation::none;
    return then_in_place(plan(bare, planner), step.then, step.y, planner);
  }
  if (winograd) return plan_winograd(step, x, y, planner);
  const std::vector<Phase> phases = dense_phases(step.window, x, y, false);
  if (phases.empty())
    return padding_zeroed(step.then, step.y, plan_forward(step, {x}, {y}, planner), planner);
  const PhasePixels taken(phases.front(), step.window, x, planner);
  ConvolutionForward dense = step;
  dense.window = phases.front().window;
  Action run = [taken,
                convolve = plan_forward(dense, taken.operand(), {y}, planner)](const Frame& frame) {
    taken.read(frame);
    convolve(frame);
  };
  return padding_zeroed(step.then, step.y, std::move(run), planner);
}

template <>
Action plan(const ConvolutionInputGradient& step, Planner& planner) {
  const Tensor dy = planner.tensor(step.dy),
               dx = planner.tensor(step.epilogue ? step.epilogue->g : step.dx);
  if (is_depthwise(step.window, dx, dy)) return plan_depthwise(step, dy, dx, planner);
  if (has_grouped_gradients(step.window, dx, dy)) return plan_grouped(step, dy, dx, planner);
  if (suits_winograd(step.window, dx, dy, planner.isa()))
    return plan_winograd(step, dy, dx, planner);
  const std::vector<Phase> phases = dense_phases(step.window, dx, dy, has_amx_bf16());
  if (phases.empty()) return plan_input_gradient(step, {dy}, {dx}, planner);
  std::vector<std::pair<Action, PhasePixels>> parts;
  for (const Phase& phase : phases) {
    const PhasePixels given(phase, step.window, dx, planner);
    ConvolutionInputGradient dense = step;
    dense.window = phase.window;
    parts.emplace_back(plan_input_gradient_of(phase.taps, dense, {dy}, given.operand(), planner),
                       given);
  }
  const bool all = std::ssize(phases) == step.window.stride_y * step.window.stride_x;
  return [dx, parts, all, threads = planner.threads()](const Frame& frame) {
    if (!all) clear(dx, threads);
    for (const auto& [convolve, given] : parts) {
      convolve(frame);
      given.write(frame);
    }
  };
}

template <>
Action plan(const ConvolutionWeightGradient& step, Planner& planner) {
  const Tensor x = planner.tensor(step.x), dy = planner.tensor(step.dy);
  if (is_depthwise(step.window, x, dy)) return plan_depthwise(step, x, dy, planner);
  if (has_grouped_gradients(step.window, x, dy)) return plan_grouped(step, x, dy, planner);
  if (suits_winograd(step.window, x, dy, planner.isa())) return plan_winograd(step, x, dy, planner);
  const std::vector<Phase> phases = dense_phases(step.window, x, dy, has_amx_bf16());
  if (phases.empty()) return plan_weight_gradient(step, {x}, {dy}, planner);
  std::vector<std::pair<PhasePixels, Action>> parts;
  ConvolutionWeightGradient dense = step;
  for (const Phase& phase : phases) {
    const PhasePixels taken(phase, step.window, x, planner);
    dense.window = phase.window;
    parts.emplace_back(taken,
                       plan_weight_gradient_of(phase.taps, dense, taken.operand(), {dy}, planner));
    dense.b.reset();  // the first phase gave it
  }
  return [parts](const Frame& frame) {
    for (const auto& [taken, correlate] : parts) {
      taken.read(frame);
      correlate(frame);
    }
  };
}

}  // namespace ringtrain::compute::onednn
