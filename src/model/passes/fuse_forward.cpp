#include <variant>

#include "model/passes/uses.hpp"
#include "ringtrain/model/passes.hpp"

namespace ringtrain::model {
namespace {

// The step that makes `producer` write `relu`'s output itself; nullopt where it has no such form.
std::optional<compute::Step> with_relu(const compute::Step& producer,
                                       const compute::ReluForward& relu) {
  return std::visit(
      [&](auto kind) -> std::optional<compute::Step> {
        if constexpr (requires {
                        kind.relu;
                        kind.y;
                      }) {
          kind.relu = true;
          kind.y = relu.y;
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
  return norm && !norm->relu && norm->residual == compute::no_tensor;
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
      fused.relu = sum->relu;
      if (!supports(schedule, fused)) continue;
      schedule.steps[s] = fused;  // here, because the other branch may come after the BatchNorm
      erase_step(schedule, at);
      return true;
    }
  }
  return false;
}

bool fuse_relu(compute::Schedule& schedule, const Supports& supports) {
  const Uses uses(schedule);
  for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
    const auto* relu = std::get_if<compute::ReluForward>(&schedule.steps[s]);
    if (!relu || uses.writer[relu->x] == no_step || !uses.only_reader(relu->x, s)) continue;
    const std::size_t at = uses.writer[relu->x];
    const std::optional<compute::Step> fused = with_relu(schedule.steps[at], *relu);
    if (!fused || !supports(schedule, *fused)) continue;
    schedule.steps[at] = *fused;
    erase_step(schedule, s);
    return true;
  }
  return false;
}

}  // namespace

compute::Schedule fuse_forward(compute::Schedule schedule, const Supports& supports) {
  expects(schedule.backward == schedule.steps.size(), "fuse_forward: forward steps only");
  while (fuse_residual(schedule, supports) || fuse_relu(schedule, supports)) {
  }
  return schedule;
}

}  // namespace ringtrain::model
