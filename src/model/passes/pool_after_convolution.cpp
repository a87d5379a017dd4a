#include <variant>

#include "model/passes/uses.hpp"
#include "ringtrain/model/passes.hpp"

namespace ringtrain::model {
namespace {

// The convolution of one pixel that alone reads what `pool` makes; no_step where there is none.
std::size_t convolution_behind(const compute::Schedule& schedule, const Uses& uses,
                               const compute::AveragePoolForward& pool) {
  if (uses.readers[pool.y].size() != 1) return no_step;
  const std::size_t at = uses.readers[pool.y][0];
  const auto* c = std::get_if<compute::ConvolutionForward>(&schedule.steps[at]);
  return c && c->window == compute::ConvolutionShape() && c->then == compute::Activation::none &&
                 !c->prologue && c->sums == compute::no_vector
             ? at
             : no_step;
}

bool keeps_extent(const compute::Schedule& schedule, const compute::AveragePoolForward& pool) {
  return schedule.tensors[pool.x] == schedule.tensors[pool.y];
}

}  // namespace

compute::Schedule pool_after_convolution(compute::Schedule schedule) {
  for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
    const auto* found = std::get_if<compute::AveragePoolForward>(&schedule.steps[s]);
    if (!found || !keeps_extent(schedule, *found)) continue;
    const compute::AveragePoolForward pool = *found;
    const std::size_t at = convolution_behind(schedule, Uses(schedule), pool);
    if (at == no_step) continue;
    auto convolution = std::get<compute::ConvolutionForward>(schedule.steps[at]);
    const compute::Shape shape = schedule.tensors[convolution.y];
    if (shape.channels >= schedule.tensors[pool.x].channels) continue;
    const compute::TensorId between = new_tensor(schedule, shape);
    schedule.steps[at] = compute::AveragePoolForward{pool.window, between, convolution.y};
    convolution.x = pool.x;
    convolution.y = between;
    schedule.steps[s] = convolution;
  }
  return schedule;
}

}  // namespace ringtrain::model
