#pragma once
#include <variant>
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

/// Which tensors of forward steps need a gradient: those that a parameter that learns is at or
/// below. All but the image, unless parameters are frozen.
class Wanted {
 public:
  explicit Wanted(const compute::Schedule& schedule)
      : schedule_(schedule), tensors_(schedule.tensors.size(), false) {
    for (const compute::Step& step : schedule.steps) mark(step);
  }
  bool operator()(compute::TensorId id) const { return tensors_[schedule_.place_of(id).of]; }
  /// Whether something that `step` writes needs one.
  bool of_results(const compute::Step& step) const {
    bool any = false;
    compute::for_each_tensor(step, [&](compute::TensorId id, compute::Access access) {
      any = any || (access == compute::Access::write && (*this)(id));
    });
    return any;
  }

 private:
  void mark(const compute::Step& step) {
    bool wanted = std::visit(
        [&](const auto& kind) {
          if constexpr (requires { kind.w; }) return schedule_.learns(kind.w);
          if constexpr (requires { kind.beta.first; }) return schedule_.learns(kind.beta);
          return false;
        },
        step);
    compute::for_each_tensor(step, [&](compute::TensorId id, compute::Access access) {
      wanted = wanted || (access == compute::Access::read && (*this)(id));
    });
    compute::for_each_tensor(step, [&](compute::TensorId id, compute::Access access) {
      if (access == compute::Access::write && wanted) tensors_[schedule_.place_of(id).of] = true;
    });
  }

  const compute::Schedule& schedule_;
  std::vector<bool> tensors_;
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
