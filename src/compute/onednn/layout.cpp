#include <algorithm>
#include <variant>

#include "compute/onednn/tensor.hpp"

namespace ringtrain::compute::onednn {
namespace {

// oneDNN has kernels of their own for a first convolution: its source is plain, where blocks would
// be mostly padding. Its weight gradient has one for up to four channels with AVX-512, where blocks
// have 16 (in bf16 with channels last), and for three without; for others a reference kernel alone.
bool may_be_plain(int channels, int block) { return block == 16 ? channels <= 3 : channels == 3; }

bool reads_images(const Step& step) {
  const auto* forward = std::get_if<ConvolutionForward>(&step);
  const auto* gradient = std::get_if<ConvolutionWeightGradient>(&step);
  return (forward && forward->window.groups == 1) || (gradient && gradient->window.groups == 1);
}

}  // namespace

std::vector<Tensor> choose_layouts(const Schedule& schedule, int block, Element element) {
  std::vector<bool> image(schedule.tensors.size(), false), other(schedule.tensors.size(), false);
  for (const Step& step : schedule.steps) {
    const bool convolution = reads_images(step), input = std::holds_alternative<Input>(step);
    for_each_tensor(step, [&](TensorId id, Access access) {
      if (input) image[id] = true;
      if (!input && !(convolution && access == Access::read)) other[id] = true;
    });
  }
  const bool channels_last = element == Element::bf16 && has_amx_bf16();
  std::vector<Tensor> result;
  for (std::size_t id = 0; id < schedule.tensors.size(); ++id) {
    const Shape& shape = schedule.tensors[id];
    const bool plain = image[id] && !other[id] && may_be_plain(shape.channels, block);
    result.push_back({shape, plain ? 1 : block, element, channels_last});
  }
  return result;
}

namespace {

// The tensors that may be slices: oneDNN's own kernels want theirs dense.
using Ids = std::vector<TensorId>;
Ids sliceable(const BatchNormForward& s) { return {s.x, s.y}; }
Ids sliceable(const BatchNormBackward& s) { return {s.x, s.dy, s.dx}; }
Ids sliceable(const BatchNormInputGradient& s) { return {s.dy, s.dx}; }
Ids sliceable(const BatchNormStatistics& s) { return {s.x}; }
Ids sliceable(const BatchNormApply& s) { return {s.x, s.y}; }
Ids sliceable(const BatchNormBackwardReduce& s) { return {s.how.x, s.dy}; }
Ids sliceable(const BatchNormBackwardApply& s) { return {s.x, s.dx}; }
// What takes in a BatchNorm is a Winograd convolution.
Ids sliceable(const ConvolutionForward& s) { return s.prologue ? Ids{s.x} : Ids{}; }
Ids sliceable(const ConvolutionWeightGradient& s) { return s.prologue ? Ids{s.x} : Ids{}; }
Ids sliceable(const ConvolutionInputGradient& s) { return s.epilogue ? Ids{s.epilogue->x} : Ids{}; }
Ids sliceable(const ChannelSlice& s) { return {s.x, s.y}; }
Ids sliceable(const Concat& s) {
  Ids ids = s.x;
  ids.push_back(s.y);
  return ids;
}
template <class Kind>
Ids sliceable(const Kind&) {
  return {};
}

// Whether a slice has blocks of its own; padding is only at the end of the whole.
bool has_whole_blocks(const Schedule& schedule, TensorId id, int block) {
  const Slice place = schedule.place_of(id);
  const int channels = schedule.tensors[id].channels;
  return place.first % block == 0 &&
         (channels % block == 0 || place.first + channels == schedule.tensors[place.of].channels);
}

}  // namespace

bool takes_slices(const Schedule& schedule, const Step& step, int block) {
  const Ids ids = std::visit([](const auto& kind) { return sliceable(kind); }, step);
  bool fits = true;
  for_each_tensor(step, [&](TensorId id, Access) {
    if (schedule.is_slice(id))
      fits = fits && std::ranges::count(ids, id) > 0 && has_whole_blocks(schedule, id, block);
  });
  return fits;
}

}  // namespace ringtrain::compute::onednn
