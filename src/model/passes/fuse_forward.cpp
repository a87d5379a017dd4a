#include <variant>

#include "model/passes/uses.hpp"
#include "ringtrain/model/passes.hpp"

namespace ringtrain::model {
namespace {

// Whether training knows the slope of `f` behind `producer`: from its output, or, where that is a
// BatchNorm of the batch, from its input, which is kept.
bool knows_slope(const compute::Step& producer, compute::Activation f) {
  const auto* norm = std::get_if<compute::BatchNormForward>(&producer);
  return facts_of(f).slope_of_output ||
         (norm && norm->training && norm->residual == compute::no_tensor);
}

// The step that makes `producer` apply `after` itself; nullopt where it has no such form.
std::optional<compute::Step> with_activation(const compute::Step& producer,
                                             const compute::Pointwise& after) {
  return std::visit(
      [&](auto kind) -> std::optional<compute::Step> {
        if constexpr (requires {
                        kind.then;
                        kind.y;
                      }) {
          if (kind.then != compute::Activation::none) return std::nullopt;
          kind.then = after.f;
          kind.y = after.y;
          return compute::Step(kind);
        }
        return std::nullopt;
      },
      producer);
}

// Whether the BatchNorm that wrote `id` can take the addition at `add` in.
bool adds_here(const compute::Schedule& schedule, const Uses& uses, compute::TensorId id,
               std::size_t add) {
  if (uses.writer[id] == no_step || !uses.only_reader(id, add)) return false;
  const auto* norm = std::get_if<compute::BatchNormForward>(&schedule.steps[uses.writer[id]]);
  return norm && norm->then == compute::Activation::none && norm->residual == compute::no_tensor;
}

bool fuse_residual(compute::Schedule& schedule, const Supports& supports) {
  const Uses uses(schedule);
  for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
    const auto* sum = std::get_if<compute::Add>(&schedule.steps[s]);
    if (!sum || sum->a == sum->b) continue;
    for (const auto& [branch, other] : {std::pair{sum->a, sum->b}, std::pair{sum->b, sum->a}}) {
      if (!adds_here(schedule, uses, branch, s)) continue;
      const std::size_t at = uses.writer[branch];
      auto fused = std::get<compute::BatchNormForward>(schedule.steps[at]);
      fused.residual = other;
      fused.y = sum->y;
      fused.then = sum->then;
      if (!supports(schedule, fused)) continue;
      schedule.steps[s] = fused;  // here, because the other branch may come after the BatchNorm
      erase_step(schedule, at);
      return true;
    }
  }
  return false;
}

bool fuse_activation(compute::Schedule& schedule, const Supports& supports, Mode mode) {
  const Uses uses(schedule);
  const Wanted wanted(schedule);
  for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
    const auto* after = std::get_if<compute::Pointwise>(&schedule.steps[s]);
    if (!after || uses.writer[after->x] == no_step || !uses.only_reader(after->x, s)) continue;
    const std::size_t at = uses.writer[after->x];
    const bool needs_slope = mode == Mode::training && wanted(after->y);
    if (needs_slope && !knows_slope(schedule.steps[at], after->f)) continue;
    const std::optional<compute::Step> fused = with_activation(schedule.steps[at], *after);
    if (!fused || !supports(schedule, *fused)) continue;
    schedule.steps[at] = *fused;
    erase_step(schedule, s);
    return true;
  }
  return false;
}

}  // namespace

compute::Schedule fuse_forward(compute::Schedule schedule, const Supports& supports, Mode mode) {
  expects(schedule.backward == schedule.steps.size(), "fuse_forward: forward steps only");
  while (fuse_residual(schedule, supports) || fuse_activation(schedule, supports, mode)) {
  }
  return schedule;
}

}  // namespace ringtrain::model
