#pragma once
#include <algorithm>
#include <string>

#include "ringtrain/model/passes.hpp"

namespace ringtrain::model {

inline const Supports everything = [](const compute::Schedule&, const compute::Step&) {
  return true;
};
inline const Supports nothing = [](const compute::Schedule&, const compute::Step&) {
  return false;
};

inline constexpr int batch_size = 3;

inline compute::Schedule schedule_of(const Graph& graph, const Supports& supports,
                                     bool fuse = true) {
  return make_schedule(graph, batch_size, Mode::training, 0.1f, supports, fuse);
}

inline int steps_named(const compute::Schedule& schedule, const std::string& name) {
  return static_cast<int>(std::ranges::count_if(
      schedule.steps, [&](const compute::Step& step) { return name_of(step) == name; }));
}

}  // namespace ringtrain::model
