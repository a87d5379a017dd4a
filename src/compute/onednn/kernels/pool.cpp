#include "compute/onednn/descriptors.hpp"
#include "compute/onednn/plan.hpp"

namespace ringtrain::compute::onednn {
namespace {

using dnnl::memory;
constexpr auto maximum = dnnl::algorithm::pooling_max;
constexpr auto average = dnnl::algorithm::pooling_avg_exclude_padding;

memory::dims kernel_of(const Window& w) { return {w.height, w.width}; }

dnnl::pooling_forward::primitive_desc forward_desc(
    dnnl::algorithm kind, const Window& window, const Tensor& x, const Tensor& y,
    const dnnl::engine& engine, dnnl::prop_kind purpose = dnnl::prop_kind::forward_training) {
  return pooling_forward_descriptor({engine, attributes()}, purpose, kind, desc_of(x), desc_of(y),
                                    kernel_of(window), window_dims(window));
}

dnnl::pooling_backward::primitive_desc backward_desc(
    dnnl::algorithm kind, const Window& window, const Tensor& dx, const Tensor& dy,
    const dnnl::engine& engine, const dnnl::pooling_forward::primitive_desc& forward) {
  return pooling_backward_descriptor({engine, attributes()}, kind, desc_of(dx), desc_of(dy),
                                     kernel_of(window), window_dims(window), forward);
}

Action action(BoundPrimitive primitive) {
  return [primitive = std::move(primitive)](const Frame&) { primitive(); };
}

}  // namespace

Action plan(const MaxPoolForward& step, Planner& planner) {
  const Tensor &x = planner.tensor(step.x), &y = planner.tensor(step.y);
  if (!planner.training())
    return action(planner.bind<dnnl::pooling_forward>(
        forward_desc(maximum, step.window, x, y, planner.engine(),
                     dnnl::prop_kind::forward_inference),
        {{DNNL_ARG_SRC, planner.memory(x)}, {DNNL_ARG_DST, planner.memory(y)}}));
  const auto desc = forward_desc(maximum, step.window, x, y, planner.engine());
  const memory::desc winners = desc.workspace_desc();  // which tap won, for the backward step
  float* kept = planner.keep(Kept::winners, step.y, (winners.get_size() + 3) / sizeof(float));
  return action(planner.bind<dnnl::pooling_forward>(
      desc, {{DNNL_ARG_SRC, planner.memory(x)},
             {DNNL_ARG_DST, planner.memory(y)},
             {DNNL_ARG_WORKSPACE, planner.memory(winners, kept)}}));
}

Action plan(const MaxPoolBackward& step, Planner& planner) {
  const Tensor &dx = planner.tensor(step.dx), &dy = planner.tensor(step.dy);
  const auto forward = forward_desc(maximum, step.window, dx, dy, planner.engine());
  const auto desc = backward_desc(maximum, step.window, dx, dy, planner.engine(), forward);
  return action(planner.bind<dnnl::pooling_backward>(
      desc, {{DNNL_ARG_DIFF_DST, planner.memory(dy)},
             {DNNL_ARG_DIFF_SRC, planner.memory(dx)},
             {DNNL_ARG_WORKSPACE,
              planner.memory(forward.workspace_desc(), planner.kept(Kept::winners, step.y))}}));
}

Action plan(const AveragePoolForward& step, Planner& planner) {
  const Tensor &x = planner.tensor(step.x), &y = planner.tensor(step.y);
  return action(planner.bind<dnnl::pooling_forward>(
      forward_desc(average, step.window, x, y, planner.engine()),
      {{DNNL_ARG_SRC, planner.memory(x)}, {DNNL_ARG_DST, planner.memory(y)}}));
}

Action plan(const AveragePoolBackward& step, Planner& planner) {
  const Tensor &dx = planner.tensor(step.dx), &dy = planner.tensor(step.dy);
  const auto forward = forward_desc(average, step.window, dx, dy, planner.engine());
  return action(planner.bind<dnnl::pooling_backward>(
      backward_desc(average, step.window, dx, dy, planner.engine(), forward),
      {{DNNL_ARG_DIFF_DST, planner.memory(dy)}, {DNNL_ARG_DIFF_SRC, planner.memory(dx)}}));
}

}  // namespace ringtrain::compute::onednn
