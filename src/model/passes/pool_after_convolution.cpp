#include <variant>

#include "model/passes/uses.hpp"
#include "ringtrain/model/passes.hpp"

namespace ringtrain {
namespace {

// The convolution of one pixel that alone reads what `pool` makes; no_step where there is none.
std::size_t convolution_behind(const Schedule& schedule, const Uses& uses,
                               const AveragePoolForward& pool) {
  if (uses.readers[pool.y].size() != 1) return no_step;
  const std::size_t at = uses.readers[pool.y][0];
  const auto* c = std::get_if<ConvolutionForward>(&schedule.steps[at]);
  return c && c->window == Window{} && !c->relu && !c->prologue && c->sums == no_vector ? at
                                                                                        : no_step;
}

bool keeps_extent(const Schedule& schedule, const AveragePoolForward& pool) {
  return schedule.tensors[pool.x] == schedule.tensors[pool.y];
}

}  // namespace

Schedule pool_after_convolution(Schedule schedule) {
  for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
    const auto* found = std::get_if<AveragePoolForward>(&schedule.steps[s]);
    if (!found || !keeps_extent(schedule, *found)) continue;
    const AveragePoolForward pool = *found;
    const std::size_t at = convolution_behind(schedule, Uses(schedule), pool);
    if (at == no_step) continue;
    auto convolution = std::get<ConvolutionForward>(schedule.steps[at]);
    const Shape shape = schedule.tensors[convolution.y];
    if (shape.channels >= schedule.tensors[pool.x].channels) continue;
    const TensorId between = new_tensor(schedule, shape);
    schedule.steps[at] = AveragePoolForward{pool.window, between, convolution.y};
    convolution.x = pool.x;
    convolution.y = between;
    schedule.steps[s] = convolution;
  }
  return schedule;
}

}  // namespace ringtrain
