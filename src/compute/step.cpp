#include "ringtrain/compute/step.hpp"

#include <algorithm>

namespace ringtrain::compute {
namespace {

template <class... Kinds>
struct Overload : Kinds... {
  using Kinds::operator()...;
};
template <class... Kinds>
Overload(Kinds...) -> Overload<Kinds...>;  // clang before 17 does not deduce it

}  // namespace

const char* name_of(const Step& step) {
  return std::visit([](const auto& kind) { return kind.name; }, step);
}

std::vector<BatchNormSums> reductions_of(const Step& step) {
  std::vector<BatchNormSums> found;
  const auto take = [&](const std::optional<BatchNormSums>& how) {
    if (how) found.push_back(*how);
  };
  std::visit(Overload{[&](const BatchNormBackwardReduce& s) { take(s.how); },
                      [&](const ConvolutionInputGradient& s) {
                        take(s.epilogue);
                        take(s.epilogue_of_residual);
                      },
                      [&](const MaxPoolBackward& s) { take(s.epilogue); }, [](const auto&) {}},
             step);
  return found;
}

bool pieces_know_only_relu(const Step& step) {
  const auto known = [](const auto& how) { return !how || is_relu_or_none(how->then); };
  return std::visit(
      [&](const auto& kind) {
        if constexpr (requires { kind.how.then; }) return is_relu_or_none(kind.how.then);
        bool all = true;
        if constexpr (requires { kind.prologue; }) all = all && known(kind.prologue);
        if constexpr (requires { kind.epilogue; }) all = all && known(kind.epilogue);
        return all;
      },
      step);
}

std::vector<ParameterRange> gradients_written(const Step& step) {
  std::vector<ParameterRange> ranges;
  const auto take = [&](const auto& part) {
    const auto add = [&](const std::optional<ParameterRange>& range) {
      if (range) ranges.push_back(*range);
    };
    if constexpr (requires { part.gradients; })
      std::apply([&](auto... range) { (add(part.*range), ...); }, part.gradients);
  };
  std::visit(take, step);
  for (const BatchNormSums& reduction : reductions_of(step)) take(reduction);
  return ranges;
}

bool touches_slice(const Schedule& schedule, const Step& step) {
  bool found = false;
  for_each_tensor(step, [&](TensorId id, Access) { found = found || schedule.is_slice(id); });
  return found;
}

std::vector<std::size_t> finality(const Schedule& schedule) {
  // Walking backward from the last step, the ranges still to be written reach up to
  // `unwritten_end`; everything from there on is final after the step before.
  std::vector<std::size_t> final_from(schedule.steps.size());
  std::size_t unwritten_end = 0;
  for (std::size_t s = schedule.steps.size(); s-- > 0;) {
    final_from[s] = unwritten_end;
    for (const ParameterRange& range : gradients_written(schedule.steps[s]))
      unwritten_end = std::max(unwritten_end, range.end());
  }
  return final_from;
}

}  // namespace ringtrain::compute
