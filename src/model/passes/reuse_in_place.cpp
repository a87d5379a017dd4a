#include <algorithm>
#include <variant>

#include "model/passes/uses.hpp"
#include "ringtrain/model/passes.hpp"

namespace ringtrain::model {
namespace {

// An elementwise step's input and output that may share their place; no_tensor for other steps.
struct Through {
  compute::TensorId in = compute::no_tensor, out = compute::no_tensor;
};

Through through(const compute::Step& step) {
  if (const auto* s = std::get_if<compute::PointwiseBackward>(&step)) return {s->dy, s->dx};
  if (const auto* s = std::get_if<compute::BatchNormInputGradient>(&step)) return {s->dy, s->dx};
  if (const auto* s = std::get_if<compute::LrnBackward>(&step)) return {s->dy, s->dx};
  if (const auto* s = std::get_if<compute::ScaleBackward>(&step)) return {s->dy, s->dx};
  if (const auto* s = std::get_if<compute::LayerNormBackward>(&step)) return {s->dy, s->dx};
  if (const auto* s = std::get_if<compute::Multiply>(&step)) return {s->x, s->y};
  if (const auto* s = std::get_if<compute::Dropout>(&step)) return {s->x, s->y};
  if (const auto* s = std::get_if<compute::Add>(&step)) return {s->a, s->y};
  if (const auto* s = std::get_if<compute::BatchNormBackwardReduce>(&step))
    return {s->dy, s->how.g};
  if (const auto* s = std::get_if<compute::BatchNormBackwardApply>(&step)) return {s->g, s->dx};
  return {};
}

}  // namespace

compute::Schedule reuse_in_place(compute::Schedule schedule) {
  const Uses uses(schedule);
  std::vector<compute::TensorId> place(schedule.tensors.size());
  for (std::size_t id = 0; id < place.size(); ++id) place[id] = static_cast<compute::TensorId>(id);
  // A tensor renamed to its input's name dies where the last reader of either, or of a slice, is.
  std::vector<std::size_t> last(place.size(), 0);
  for (std::size_t id = 0; id < place.size(); ++id) {
    std::size_t& end = last[schedule.place_of(static_cast<compute::TensorId>(id)).of];
    if (!uses.readers[id].empty()) end = std::max(end, uses.readers[id].back());
  }

  for (std::size_t s = schedule.backward; s < schedule.steps.size(); ++s) {
    const auto [in, out] = through(schedule.steps[s]);
    if (in == compute::no_tensor || out == compute::no_tensor) continue;
    if (schedule.is_slice(in) || schedule.is_slice(out)) continue;
    const compute::TensorId at = place[in];
    if (last[at] != s) continue;
    place[out] = at;
    last[at] = last[out];
  }
  for (compute::Step& step : schedule.steps)
    compute::for_each_tensor(step, [&](compute::TensorId& id, compute::Access) { id = place[id]; });
  for (auto& [id, slice] : schedule.slices) slice.of = place[slice.of];
  return schedule;
}

}  // namespace ringtrain::model
