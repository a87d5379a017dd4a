#include "compute/cuda/runtime/slices.hpp"

#include <algorithm>
#include <variant>

namespace ringtrain::compute::cuda {
namespace {

using Ids = std::vector<TensorId>;

// The operands for which the kernel of a step has a pitch, or that it does not read.
Ids pitched(const BatchNormForward& s) { return {s.x, s.y}; }
Ids pitched(const BatchNormBackward& s) { return {s.dy}; }
Ids pitched(const BatchNormStatistics& s) { return {s.x}; }
Ids pitched(const BatchNormApply& s) { return {s.x, s.y}; }
Ids pitched(const BatchNormBackwardReduce& s) { return {s.dy, s.how.x}; }
Ids pitched(const BatchNormBackwardApply& s) {
  return s.dx2 == no_tensor ? Ids{s.g, s.x, s.dx} : Ids{};
}
Ids pitched(const MaxPoolForward& s) { return {s.y}; }
Ids pitched(const MaxPoolBackward& s) { return s.dy2 == no_tensor ? Ids{s.y, s.dy} : Ids{s.y}; }
Ids pitched(const AveragePoolForward& s) { return {s.y}; }
Ids pitched(const AveragePoolBackward& s) { return {s.dy}; }
Ids pitched(const ChannelSlice& s) { return {s.x, s.y}; }
Ids pitched(const Concat& s) {
  Ids ids = s.x;
  ids.push_back(s.y);
  return ids;
}
// cuDNN's fused engines read slices as they are; the others would make a copy unseen.
Ids pitched(const ConvolutionForward& s) { return s.prologue ? Ids{s.x} : Ids{}; }
Ids pitched(const ConvolutionWeightGradient& s) { return s.prologue ? Ids{s.x} : Ids{}; }
Ids pitched(const ConvolutionInputGradient& s) { return s.epilogue ? Ids{s.epilogue->x} : Ids{}; }
template <class Kind>
Ids pitched(const Kind&) {
  return {};
}

bool is_cudnn(const Step& step) {
  return std::holds_alternative<ConvolutionForward>(step) ||
         std::holds_alternative<ConvolutionInputGradient>(step) ||
         std::holds_alternative<ConvolutionWeightGradient>(step);
}

bool is_aligned(const Schedule& schedule, TensorId id, Element element) {
  const Slice place = schedule.place_of(id);
  const std::size_t wide = 16 / bytes_of(element);
  return place.first % wide == 0 && schedule.tensors[place.of].channels % wide == 0;
}

}  // namespace

bool takes_slices(const Schedule& schedule, const Step& step, Element element) {
  const Ids with_pitch = std::visit([](const auto& kind) { return pitched(kind); }, step);
  const bool aligned_only = is_cudnn(step);
  Ids operands;
  for_each_tensor(step, [&](TensorId id, Access) { operands.push_back(id); });
  return std::ranges::all_of(operands, [&](TensorId id) {
    if (!schedule.is_slice(id)) return true;
    // A tensor may be two operands, one of them without a pitch.
    return std::ranges::count(with_pitch, id) == std::ranges::count(operands, id) &&
           (!aligned_only || is_aligned(schedule, id, element));
  });
}

}  // namespace ringtrain::compute::cuda
