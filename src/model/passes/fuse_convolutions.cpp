#include <algorithm>
#include <type_traits>
#include <variant>

#include "model/passes/uses.hpp"
#include "ringtrain/model/passes.hpp"

namespace ringtrain::model {
namespace {

template <class Kind>
Kind* written_by(compute::Schedule& schedule, const Uses& uses, compute::TensorId id) {
  if (id == compute::no_tensor || uses.writer[id] == no_step) return nullptr;
  return std::get_if<Kind>(&schedule.steps[uses.writer[id]]);
}

// A residual that is only a scaled branch is scaled where it is added.
bool scale_residual(compute::Schedule& schedule, std::size_t at, const Uses& uses,
                    const Supports& supports) {
  const auto* sum = std::get_if<compute::BatchNormApply>(&schedule.steps[at]);
  if (!sum || sum->how.residual_scale != compute::no_vector) return false;
  const auto* branch = written_by<compute::BatchNormApply>(schedule, uses, sum->how.residual);
  if (!branch || branch->how.then != compute::Activation::none ||
      branch->how.residual != compute::no_tensor)
    return false;
  if (!uses.only_reader(branch->y, at)) return false;
  compute::BatchNormApply fused = *sum;
  fused.how.residual = branch->x;
  fused.how.residual_scale = branch->how.scale;
  fused.how.residual_bias = branch->how.bias;
  if (!supports(schedule, fused)) return false;
  schedule.steps[at] = fused;
  erase_step(schedule, uses.writer[branch->y]);
  return true;
}

// The convolution that writes x sums it up, too.
bool sum_in_convolution(compute::Schedule& schedule, std::size_t at, const Uses& uses,
                        const Supports& supports) {
  const auto* statistics = std::get_if<compute::BatchNormStatistics>(&schedule.steps[at]);
  if (!statistics) return false;
  auto* convolution = written_by<compute::ConvolutionForward>(schedule, uses, statistics->x);
  if (!convolution || convolution->y != statistics->x || convolution->sums != compute::no_vector)
    return false;
  compute::ConvolutionForward fused = *convolution;
  fused.sums = statistics->sums;
  if (!supports(schedule, fused)) return false;
  *convolution = fused;
  erase_step(schedule, at);
  return true;
}

// The sums of a convolution that wrote slices for several BatchNorms; no_vector where it makes
// none.
compute::VectorId sums_of_all(compute::Schedule& schedule, compute::ConvolutionForward& convolution,
                              const Supports& supports) {
  if (convolution.sums != compute::no_vector) return convolution.sums;
  compute::ConvolutionForward fused = convolution;
  fused.sums = new_vector(schedule, 2 * schedule.tensors[convolution.y].channels);
  if (supports(schedule, fused))
    convolution = fused;
  else
    schedule.vectors.pop_back();
  return convolution.sums;
}

// Each of those BatchNorms takes its part of them.
bool sum_slices_in_convolution(compute::Schedule& schedule, std::size_t at, const Uses& uses,
                               const Supports& supports) {
  const auto* found = std::get_if<compute::BatchNormStatistics>(&schedule.steps[at]);
  if (!found || !schedule.is_slice(found->x)) return false;
  const compute::BatchNormStatistics statistics = *found;
  const compute::Slice place = schedule.place_of(statistics.x);
  auto* convolution = written_by<compute::ConvolutionForward>(schedule, uses, place.of);
  if (!convolution || convolution->y != place.of) return false;
  const compute::VectorId sums = sums_of_all(schedule, *convolution, supports);
  if (sums == compute::no_vector) return false;
  for (compute::Step& step : schedule.steps)
    if (auto* norm = std::get_if<compute::BatchNormFinalize>(&step);
        norm && norm->sums == statistics.sums) {
      norm->sums = sums;
      norm->first = place.first;
    }
  erase_step(schedule, at);
  return true;
}

// `step` with `apply` as its prologue; nullopt where it is none that has one and reads its result.
std::optional<compute::Step> with_prologue(compute::Step step,
                                           const compute::BatchNormApply& apply) {
  return std::visit(
      [&](auto& kind) -> std::optional<compute::Step> {
        if constexpr (requires { kind.prologue; }) {
          if (kind.x != apply.y || kind.prologue) return std::nullopt;
          kind.x = apply.x;
          kind.prologue = apply.how;
          if constexpr (std::is_same_v<decltype(kind), compute::MaxPoolBackward&>)
            kind.y = compute::no_tensor;
          return kind;
        }
        return std::nullopt;
      },
      step);
}

// Where only convolutions and max pools read the activated tensor, each of them makes it anew from
// x: reading x costs what reading y would, and y is never stored.
bool activate_in_readers(compute::Schedule& schedule, std::size_t at, const Uses& uses,
                         const Supports& supports) {
  const auto apply = std::get<compute::BatchNormApply>(schedule.steps[at]);
  const auto& readers = uses.readers[apply.y];
  if (apply.how.residual != compute::no_tensor || readers.empty()) return false;
  std::vector<compute::Step> fused;
  for (const std::size_t reader : readers) {
    const std::optional<compute::Step> step = with_prologue(schedule.steps[reader], apply);
    if (!step || !supports(schedule, *step)) return false;
    fused.push_back(*step);
  }
  for (std::size_t i = 0; i < readers.size(); ++i) schedule.steps[readers[i]] = fused[i];
  erase_step(schedule, at);
  return true;
}

// Where others read the activated tensor as well, the first convolution that can also writes it,
// in the place of the step that did: so all readers come after.
bool activate_in_one_reader(compute::Schedule& schedule, std::size_t at, const Uses& uses,
                            const Supports& supports) {
  compute::BatchNormApply apply = std::get<compute::BatchNormApply>(schedule.steps[at]);
  apply.how.y = apply.y;
  for (const std::size_t reader : uses.readers[apply.y]) {
    if (!std::holds_alternative<compute::ConvolutionForward>(schedule.steps[reader])) continue;
    const std::optional<compute::Step> fused = with_prologue(schedule.steps[reader], apply);
    if (!fused || !supports(schedule, *fused)) continue;
    schedule.steps[at] = *fused;
    erase_step(schedule, reader);
    return true;
  }
  return false;
}

bool activate_in_convolution(compute::Schedule& schedule, std::size_t at, const Uses& uses,
                             const Supports& supports) {
  return std::holds_alternative<compute::BatchNormApply>(schedule.steps[at]) &&
         (activate_in_readers(schedule, at, uses, supports) ||
          activate_in_one_reader(schedule, at, uses, supports));
}

// `how` with its mask from what the activated output was made of, where that is known.
std::optional<compute::BatchNormSums> mask_made_anew(compute::BatchNormSums how,
                                                     compute::Schedule& schedule,
                                                     const Uses& uses) {
  const auto* apply = written_by<compute::BatchNormApply>(schedule, uses, how.y);
  const auto* convolution = written_by<compute::ConvolutionForward>(schedule, uses, how.y);
  if (!apply && !(convolution && convolution->prologue && convolution->prologue->y == how.y))
    return std::nullopt;
  const compute::AppliedNorm& made = apply ? apply->how : *convolution->prologue;
  how.y = compute::no_tensor;
  how.residual = made.residual;
  how.residual_scale = made.residual_scale;
  how.residual_bias = made.residual_bias;
  return how;
}

// The reduction of the branch that is the residual of `how`, which has the same g; or no_step.
std::size_t reduction_of_branch(const compute::BatchNormSums& how,
                                const compute::Schedule& schedule, const Uses& uses) {
  for (const std::size_t reader : uses.readers[how.g]) {
    const auto* branch = std::get_if<compute::BatchNormBackwardReduce>(&schedule.steps[reader]);
    if (branch && branch->dy == how.g && branch->how.x == how.residual &&
        branch->how.g == compute::no_tensor)
      return reader;
  }
  return no_step;
}

// Takes the reduction at `at` into the step of this Kind that writes `dy`, in the reduction's
// place: there, `how.skip` is known. Where the residual was a scaled branch, preferably with its
// sums.
template <class Kind>
bool reduce_where_written(compute::TensorId dy, compute::BatchNormSums how,
                          compute::Schedule& schedule, std::size_t at, const Uses& uses,
                          const Supports& supports) {
  const auto* gradient = written_by<Kind>(schedule, uses, dy);
  if (!gradient || gradient->dx != dy || uses.readers[dy].front() != at) return false;
  if (how.g == compute::no_tensor)
    how.g = dy;  // which others may read
  else if (!uses.only_reader(dy, at))
    return false;
  const auto take = [&](const compute::BatchNormSums& epilogue, std::size_t branch) {
    Kind fused = *gradient;
    fused.dx = compute::no_tensor;
    fused.epilogue = epilogue;
    if constexpr (requires { fused.epilogue_of_residual; })
      if (branch != no_step)
        fused.epilogue_of_residual =
            std::get<compute::BatchNormBackwardReduce>(schedule.steps[branch]).how;
    if (!supports(schedule, fused)) return false;
    if (branch != no_step) erase_step(schedule, branch);  // it comes after
    schedule.steps[at] = fused;
    erase_step(schedule, uses.writer[dy]);
    return true;
  };
  if (const auto anew = mask_made_anew(how, schedule, uses)) {
    const std::size_t branch = std::is_same_v<Kind, compute::ConvolutionInputGradient>
                                   ? reduction_of_branch(*anew, schedule, uses)
                                   : no_step;
    if ((branch != no_step && take(*anew, branch)) || take(*anew, no_step)) return true;
  }
  return take(how, no_step);
}

template <class Kind>
bool reduce_in(compute::Schedule& schedule, std::size_t at, const Uses& uses,
               const Supports& supports) {
  const auto* found = std::get_if<compute::BatchNormBackwardReduce>(&schedule.steps[at]);
  if (!found) return false;
  const compute::BatchNormBackwardReduce reduce = *found;
  const compute::TensorId dy = reduce.dy, skip = reduce.how.skip;
  if (skip == compute::no_tensor)
    return reduce_where_written<Kind>(dy, reduce.how, schedule, at, uses, supports);
  compute::BatchNormSums other_way = reduce.how;
  other_way.skip = dy;
  // The one written last comes first: it moves the least.
  const auto first = [&] {
    return reduce_where_written<Kind>(dy, reduce.how, schedule, at, uses, supports);
  };
  const auto second = [&] {
    return reduce_where_written<Kind>(skip, other_way, schedule, at, uses, supports);
  };
  return uses.writer[dy] > uses.writer[skip] ? first() || second() : second() || first();
}

using ForwardFusion = bool (*)(compute::Schedule&, std::size_t at, const Uses&, const Supports&);

bool fuse_next(compute::Schedule& schedule, ForwardFusion fusion, const Supports& supports) {
  const Uses uses(schedule);
  for (std::size_t s = 0; s < schedule.steps.size(); ++s)
    if (fusion(schedule, s, uses, supports)) return true;
  return false;
}

}  // namespace

compute::Schedule fuse_convolutions(compute::Schedule schedule, const Supports& supports) {
  for (const ForwardFusion fusion :
       {scale_residual, sum_in_convolution, sum_slices_in_convolution, activate_in_convolution,
        reduce_in<compute::ConvolutionInputGradient>, reduce_in<compute::MaxPoolBackward>})
    while (fuse_next(schedule, fusion, supports)) {
    }
  return schedule;
}

}  // namespace ringtrain::model
