#include <algorithm>
#include <variant>

#include "model/passes/uses.hpp"
#include "ringtrain/model/passes.hpp"

namespace ringtrain::model {
namespace {

bool touches(const compute::Step& step, compute::TensorId wanted) {
  bool found = false;
  compute::for_each_tensor(
      step, [&](compute::TensorId id, compute::Access) { found = found || id == wanted; });
  return found;
}

// Whether `id` neither is a slice nor has any.
bool is_free(const compute::Schedule& schedule, compute::TensorId id) {
  return !schedule.is_slice(id) && std::ranges::none_of(schedule.slices, [&](const auto& slice) {
    return slice.second.of == id;
  });
}

// Makes `id` a slice, if it is none and all steps that touch it can work there.
bool lay(compute::Schedule& schedule, compute::TensorId id, compute::Slice place,
         const Supports& supports) {
  if (!is_free(schedule, id)) return false;
  const compute::Slice whole = schedule.place_of(place.of);
  schedule.slices[id] = {whole.of, whole.first + place.first};
  const bool fits = std::ranges::all_of(schedule.steps, [&](const compute::Step& step) {
    return !touches(step, id) || supports(schedule, step);
  });
  if (!fits) schedule.slices.erase(id);
  return fits;
}

// Where an input cannot be written in its place, it is copied there.
compute::Concat copy_into(compute::Schedule& schedule, compute::TensorId x, compute::Slice place) {
  const compute::TensorId copy = new_tensor(schedule, compute::Shape(schedule.tensors[x]));
  const compute::Slice whole = schedule.place_of(place.of);
  schedule.slices[copy] = {whole.of, whole.first + place.first};
  return {{x}, copy};
}

// Takes the concatenation at `at` out and has its inputs written where it would have copied them;
// leaves all as it is where no input can be, or the others cannot be copied there.
compute::Schedule join(const compute::Schedule& before, std::size_t at, const Supports& supports) {
  const compute::Concat all = std::get<compute::Concat>(before.steps[at]);
  compute::Schedule schedule = before;
  erase_step(schedule, at);
  std::vector<compute::Step> copies;
  int first = 0;
  for (const compute::TensorId x : all.x) {
    if (!lay(schedule, x, {all.y, first}, supports))
      copies.push_back(copy_into(schedule, x, {all.y, first}));
    first += schedule.tensors[x].channels;
  }
  const bool possible = std::ranges::all_of(
      copies, [&](const compute::Step& copy) { return supports(schedule, copy); });
  if (!possible || copies.size() == all.x.size()) return before;
  const auto place = schedule.steps.begin() + static_cast<std::ptrdiff_t>(at);
  schedule.steps.insert(place, copies.begin(), copies.end());
  schedule.backward += copies.size();
  return schedule;
}

// Has the readers of a slice of a gradient read it there.
compute::Schedule read_there(const compute::Schedule& before, std::size_t at,
                             const Supports& supports) {
  const compute::ChannelSlice part = std::get<compute::ChannelSlice>(before.steps[at]);
  compute::Schedule schedule = before;
  erase_step(schedule, at);
  return lay(schedule, part.y, {part.x, part.first}, supports) ? schedule : before;
}

}  // namespace

compute::Schedule join_in_place(compute::Schedule schedule, const Supports& supports) {
  // Last first: an input that is itself a concatenation has its place by then.
  for (std::size_t s = schedule.backward; s-- > 0;)
    if (std::holds_alternative<compute::Concat>(schedule.steps[s]))
      schedule = join(schedule, s, supports);
  for (std::size_t s = schedule.backward; s < schedule.steps.size();) {
    const std::size_t steps = schedule.steps.size();
    if (std::holds_alternative<compute::ChannelSlice>(schedule.steps[s]))
      schedule = read_there(schedule, s, supports);
    if (schedule.steps.size() == steps) ++s;
  }
  return schedule;
}

}  // namespace ringtrain::model
