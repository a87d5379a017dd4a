#include "model/passes/uses.hpp"
#include "ringtrain/model/passes.hpp"

namespace ringtrain {
namespace {

// relu'(max pool'(dy)) = max pool'(relu'(dy)): the gradient only reaches the maximum, and that is
// positive exactly where the pooled value is.
bool sink_mask_through_pool(Schedule& schedule, std::size_t at, const Uses& uses) {
  const auto mask = std::get<ReluBackward>(schedule.steps[at]);
  const std::size_t producer = uses.writer[mask.dy];
  if (producer == no_step || !uses.only_reader(mask.dy, at)) return false;
  auto* pool = std::get_if<MaxPoolBackward>(&schedule.steps[producer]);
  if (!pool || pool->x != mask.y) return false;
  const TensorId masked = new_tensor(schedule, Shape(schedule.tensors[pool->dy]));
  const ReluBackward early{pool->y, pool->dy, masked};
  MaxPoolBackward late = *pool;
  late.dy = masked;
  late.dx = mask.dx;
  schedule.steps[producer] = early;
  schedule.steps[at] = late;
  return true;
}

bool mask_in_lrn(Schedule& schedule, std::size_t at, const Uses& uses, const Supports& supports) {
  const auto mask = std::get<ReluBackward>(schedule.steps[at]);
  const std::size_t producer = uses.writer[mask.dy];
  if (producer == no_step || !uses.only_reader(mask.dy, at)) return false;
  const auto* lrn = std::get_if<LrnBackward>(&schedule.steps[producer]);
  if (!lrn || lrn->x != mask.y) return false;
  LrnBackward fused = *lrn;
  fused.mask = true;
  fused.dx = mask.dx;
  if (!supports(schedule, fused)) return false;
  schedule.steps[producer] = fused;
  erase_step(schedule, at);
  return true;
}

bool sum_in_batch_norm(Schedule& schedule, std::size_t at, const Uses& uses,
                       const Supports& supports) {
  auto fused = std::get<BatchNormBackward>(schedule.steps[at]);
  if (fused.dy2 != no_tensor || !uses.only_reader(fused.dy, at)) return false;
  const std::size_t producer = uses.writer[fused.dy];
  const auto* sum = producer == no_step ? nullptr : std::get_if<Add>(&schedule.steps[producer]);
  if (!sum || sum->relu) return false;
  fused.dy = sum->a;
  fused.dy2 = sum->b;
  if (!supports(schedule, fused)) return false;
  schedule.steps[at] = fused;
  erase_step(schedule, producer);
  return true;
}

bool fuse_one(Schedule& schedule, const Supports& supports) {
  const Uses uses(schedule);
  for (std::size_t s = schedule.backward; s < schedule.steps.size(); ++s) {
    if (std::holds_alternative<ReluBackward>(schedule.steps[s]) &&
        (sink_mask_through_pool(schedule, s, uses) || mask_in_lrn(schedule, s, uses, supports)))
      return true;
    if (std::holds_alternative<BatchNormBackward>(schedule.steps[s]) &&
        sum_in_batch_norm(schedule, s, uses, supports))
      return true;
  }
  return false;
}

}  // namespace

Schedule fuse_backward(Schedule schedule, const Supports& supports) {
  while (fuse_one(schedule, supports)) {
  }
  return schedule;
}

}  // namespace ringtrain
