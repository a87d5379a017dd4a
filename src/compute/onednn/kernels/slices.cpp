#include "compute/onednn/kernels/slices.hpp"

#include <algorithm>
#include <variant>

namespace ringtrain::compute::onednn {
namespace {

// The tensors that may be slices: oneDNN's own kernels want theirs dense.
using Ids = std::vector<TensorId>;
Ids sliceable(const BatchNormForward& s) { return {s.x, s.y}; }
Ids sliceable(const BatchNormBackward& s) { return {s.x, s.dy, s.dx}; }
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
