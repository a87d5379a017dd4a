#pragma once
#include <vector>

#include "ringtrain/compute/step.hpp"

namespace ringtrain::model {

inline constexpr std::size_t no_step = SIZE_MAX;

/// Which steps touch each tensor; made anew after every change of the schedule.
struct Uses {
  explicit Uses(const compute::Schedule& schedule)
      : readers(schedule.tensors.size()), writer(schedule.tensors.size(), no_step) {
    for (std::size_t s = 0; s < schedule.steps.size(); ++s)
      compute::for_each_tensor(schedule.steps[s],
                               [&](compute::TensorId id, compute::Access access) {
                                 if (access == compute::Access::read)
                                   readers[id].push_back(s);
                                 else
                                   writer[id] = s;
                               });
  }
  bool only_reader(compute::TensorId id, std::size_t step) const {
    return readers[id] == std::vector<std::size_t>{step};
  }

  std::vector<std::vector<std::size_t>> readers;  ///< steps, in order
  std::vector<std::size_t> writer;                ///< the last step that writes it
};

/// Takes out the step at `at`, keeping Schedule::backward at the same step.
inline void erase_step(compute::Schedule& schedule, std::size_t at) {
  schedule.steps.erase(schedule.steps.begin() + static_cast<std::ptrdiff_t>(at));
  if (at < schedule.backward) --schedule.backward;
}

inline compute::TensorId new_tensor(compute::Schedule& schedule, const compute::Shape& shape) {
  schedule.tensors.push_back(shape);
  return static_cast<compute::TensorId>(schedule.tensors.size() - 1);
}

inline compute::VectorId new_vector(compute::Schedule& schedule, int extent) {
  schedule.vectors.push_back(extent);
  return static_cast<compute::VectorId>(schedule.vectors.size() - 1);
}

}  // namespace ringtrain::model
