#include "ringtrain/compute/step.hpp"

#include <algorithm>
#include <array>

namespace ringtrain::compute {
namespace {

template <class... Kinds>
struct Overload : Kinds... {
  using Kinds::operator()...;
};
template <class... Kinds>
Overload(Kinds...) -> Overload<Kinds...>;  // clang before 17 does not deduce it

std::vector<ParameterRange> weight_and_bias(const auto& step) {
  std::vector<ParameterRange> ranges{step.w};
  if (step.b) ranges.push_back(*step.b);
  return ranges;
}

std::vector<ParameterRange> gamma_and_beta(const auto& norm) {
  std::vector<ParameterRange> ranges{norm.beta};
  if (norm.gamma) ranges.push_back(*norm.gamma);
  return ranges;
}

}  // namespace

const char* name_of(const Step& step) {
  static constexpr std::array names{"Input",
                                    "ConvolutionForward",
                                    "ConvolutionInputGradient",
                                    "ConvolutionWeightGradient",
                                    "MatrixProductForward",
                                    "MatrixProductInputGradient",
                                    "MatrixProductWeightGradient",
                                    "ReluForward",
                                    "ReluBackward",
                                    "BatchNormForward",
                                    "BatchNormBackward",
                                    "Add",
                                    "Concat",
                                    "ChannelSlice",
                                    "ShortcutForward",
                                    "ShortcutBackward",
                                    "MaxPoolForward",
                                    "MaxPoolBackward",
                                    "AveragePoolForward",
                                    "AveragePoolBackward",
                                    "LrnForward",
                                    "LrnBackward",
                                    "Dropout",
                                    "SoftmaxCrossEntropy",
                                    "BatchNormStatistics",
                                    "BatchNormFinalize",
                                    "BatchNormApply",
                                    "BatchNormBackwardReduce",
                                    "BatchNormBackwardApply"};
  static_assert(names.size() == std::variant_size_v<Step>);
  return names[step.index()];
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

std::vector<ParameterRange> gradients_written(const Step& step) {
  return std::visit(
      Overload{[](const ConvolutionWeightGradient& s) { return weight_and_bias(s); },
               [](const MatrixProductWeightGradient& s) { return weight_and_bias(s); },
               [](const BatchNormBackward& s) { return gamma_and_beta(s); },
               [&](const auto&) {
                 std::vector<ParameterRange> ranges;
                 for (const BatchNormSums& reduction : reductions_of(step))
                   std::ranges::copy(gamma_and_beta(reduction), back_inserter(ranges));
                 return ranges;
               }},
      step);
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
