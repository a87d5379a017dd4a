#include "ringtrain/compute/step.hpp"

#include <algorithm>
#include <array>

namespace ringtrain {
namespace {

template <class... Kinds>
struct Overload : Kinds... {
  using Kinds::operator()...;
};

std::vector<ParameterRange> weight_and_bias(const auto& step) {
  std::vector<ParameterRange> ranges{step.w};
  if (step.b) ranges.push_back(*step.b);
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
                                    "SoftmaxCrossEntropy"};
  static_assert(names.size() == std::variant_size_v<Step>);
  return names[step.index()];
}

std::vector<ParameterRange> gradients_written(const Step& step) {
  return std::visit(
      Overload{[](const ConvolutionWeightGradient& s) { return weight_and_bias(s); },
               [](const MatrixProductWeightGradient& s) { return weight_and_bias(s); },
               [](const BatchNormBackward& s) {
                 std::vector<ParameterRange> ranges{s.beta};
                 if (s.gamma) ranges.push_back(*s.gamma);
                 return ranges;
               },
               [](const auto&) { return std::vector<ParameterRange>{}; }},
      step);
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

}  // namespace ringtrain
