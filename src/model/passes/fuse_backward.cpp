#include <variant>

#include "model/passes/uses.hpp"
#include "ringtrain/model/passes.hpp"

namespace ringtrain::model {
namespace {

const compute::PointwiseBackward* relu_mask(const compute::Step& step) {
  const auto* found = std::get_if<compute::PointwiseBackward>(&step);
  return found && found->f == compute::Activation::relu ? found : nullptr;
}

// relu'(max pool'(dy)) = max pool'(relu'(dy)): the gradient only reaches the maximum, and that is
// positive exactly where the pooled value is.
bool sink_mask_through_pool(compute::Schedule& schedule, std::size_t at, const Uses& uses,
                            const Supports&) {
  const compute::PointwiseBackward* found = relu_mask(schedule.steps[at]);
  if (!found) return false;
  const compute::PointwiseBackward mask = *found;
  const std::size_t producer = uses.writer[mask.dy];
  if (producer == no_step || !uses.only_reader(mask.dy, at)) return false;
  auto* pool = std::get_if<compute::MaxPoolBackward>(&schedule.steps[producer]);
  if (!pool || pool->x != mask.saved) return false;
  const compute::TensorId masked = new_tensor(schedule, compute::Shape(schedule.tensors[pool->dy]));
  const compute::PointwiseBackward early{mask.f, pool->y, pool->dy, masked};
  compute::MaxPoolBackward late = *pool;
  late.dy = masked;
  late.dx = mask.dx;
  schedule.steps[producer] = early;
  schedule.steps[at] = late;
  return true;
}

bool mask_in_lrn(compute::Schedule& schedule, std::size_t at, const Uses& uses,
                 const Supports& supports) {
  const compute::PointwiseBackward* found = relu_mask(schedule.steps[at]);
  if (!found) return false;
  const compute::PointwiseBackward mask = *found;
  const std::size_t producer = uses.writer[mask.dy];
  if (producer == no_step || !uses.only_reader(mask.dy, at)) return false;
  const auto* lrn = std::get_if<compute::LrnBackward>(&schedule.steps[producer]);
  if (!lrn || lrn->x != mask.saved) return false;
  compute::LrnBackward fused = *lrn;
  fused.mask = true;
  fused.dx = mask.dx;
  if (!supports(schedule, fused)) return false;
  schedule.steps[producer] = fused;
  erase_step(schedule, at);
  return true;
}

// The sum of two gradients is made by the only step that reads it.
template <class Kind>
bool sum_in(compute::Schedule& schedule, std::size_t at, const Uses& uses,
            const Supports& supports) {
  if (!std::holds_alternative<Kind>(schedule.steps[at])) return false;
  auto fused = std::get<Kind>(schedule.steps[at]);
  if (fused.dy2 != compute::no_tensor || !uses.only_reader(fused.dy, at)) return false;
  const std::size_t producer = uses.writer[fused.dy];
  const auto* sum =
      producer == no_step ? nullptr : std::get_if<compute::Add>(&schedule.steps[producer]);
  if (!sum || sum->then != compute::Activation::none) return false;
  fused.dy = sum->a;
  fused.dy2 = sum->b;
  if (!supports(schedule, fused)) return false;
  schedule.steps[at] = fused;
  erase_step(schedule, producer);
  return true;
}

using Fusion = bool (*)(compute::Schedule&, std::size_t at, const Uses&, const Supports&);

bool fuse_one(compute::Schedule& schedule, Fusion fusion, const Supports& supports) {
  const Uses uses(schedule);
  for (std::size_t s = schedule.backward; s < schedule.steps.size(); ++s)
    if (fusion(schedule, s, uses, supports)) return true;
  return false;
}

}  // namespace

compute::Schedule fuse_backward(compute::Schedule schedule, const Supports& supports) {
  // Masks first: behind a pool that sums, they could not sink.
  for (const Fusion fusion : {sink_mask_through_pool, mask_in_lrn,
                              sum_in<compute::BatchNormBackward>, sum_in<compute::MaxPoolBackward>})
    while (fuse_one(schedule, fusion, supports)) {
    }
  return schedule;
}

}  // namespace ringtrain::model
