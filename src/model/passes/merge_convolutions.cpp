#include <algorithm>
#include <variant>

#include "model/passes/some_backward.hpp"
#include "model/passes/uses.hpp"
#include "ringtrain/model/passes.hpp"

namespace ringtrain::model {
namespace {

// The BatchNorm that alone reads `id`, or null.
const compute::BatchNormForward* norm_of(const compute::Schedule& schedule, const Uses& uses,
                                         compute::TensorId id) {
  if (uses.readers[id].size() != 1) return nullptr;
  const auto* norm = std::get_if<compute::BatchNormForward>(&schedule.steps[uses.readers[id][0]]);
  return norm && norm->x == id && norm->residual != id ? norm : nullptr;
}

// The convolution at `at`, where it may be merged: of one pixel, and a BatchNorm behind it.
const compute::ConvolutionForward* candidate(const compute::Schedule& schedule, const Uses& uses,
                                             std::size_t at) {
  const auto* c = std::get_if<compute::ConvolutionForward>(&schedule.steps[at]);
  return c && c->window == compute::ConvolutionShape() && !c->b &&
                 c->then == compute::Activation::none && !schedule.is_slice(c->y) &&
                 norm_of(schedule, uses, c->y)
             ? c
             : nullptr;
}

// The steps from `at` on that read what it reads, with weights one behind the other.
std::vector<std::size_t> neighbours(const compute::Schedule& schedule, const Uses& uses,
                                    std::size_t at) {
  std::vector<std::size_t> group{at};
  const auto* last = candidate(schedule, uses, at);
  for (const std::size_t reader : uses.readers[last->x]) {
    const auto* next = candidate(schedule, uses, reader);
    if (reader <= group.back() || !next || next->w.first != last->w.end() ||
        schedule.learns(next->w) != schedule.learns(last->w))
      continue;
    group.push_back(reader);
    last = next;
  }
  return group;
}

// Whether the BatchNorm behind `y` can read it, and write its gradient, where it is now.
bool fits(const compute::Schedule& schedule, compute::TensorId y, const Supports& supports) {
  const compute::BatchNormForward& norm = *norm_of(schedule, Uses(schedule), y);
  return supports(schedule, norm) && (!norm.training || supports(schedule, some_backward(norm)));
}

compute::Schedule merged(const compute::Schedule& before, const std::vector<std::size_t>& group,
                         const Supports& supports) {
  compute::Schedule schedule = before;
  auto all = std::get<compute::ConvolutionForward>(before.steps[group.front()]);
  std::vector<compute::TensorId> parts;
  compute::Shape shape = before.tensors[all.y];
  shape.channels = 0;
  all.w.count = 0;
  all.y = new_tensor(schedule, shape);
  for (const std::size_t at : group) {
    const auto& part = std::get<compute::ConvolutionForward>(before.steps[at]);
    schedule.slices[part.y] = {all.y, schedule.tensors[all.y].channels};
    schedule.tensors[all.y].channels += before.tensors[part.y].channels;
    all.w.count += part.w.count;
    parts.push_back(part.y);
  }
  schedule.steps[group.front()] = all;
  for (std::size_t i = group.size(); i-- > 1;) erase_step(schedule, group[i]);
  const bool possible =
      supports(schedule, all) &&
      std::ranges::all_of(parts, [&](compute::TensorId y) { return fits(schedule, y, supports); });
  return possible ? schedule : before;
}

}  // namespace

compute::Schedule merge_convolutions(compute::Schedule schedule, const Supports& supports) {
  for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
    const Uses uses(schedule);
    if (!candidate(schedule, uses, s)) continue;
    const std::vector<std::size_t> group = neighbours(schedule, uses, s);
    if (group.size() > 1) schedule = merged(schedule, group, supports);
  }
  return schedule;
}

}  // namespace ringtrain::model
