#include "ringtrain/model/passes.hpp"

namespace ringtrain {

Schedule make_schedule(const Graph& graph, int batch, Mode mode, float label_smoothing,
                       const Supports& supports, bool fuse) {
  Schedule schedule = lower(graph, batch, mode, label_smoothing);
  if (fuse) schedule = fuse_forward(std::move(schedule), supports);
  if (mode == Mode::evaluation) return schedule;
  schedule = differentiate(std::move(schedule));
  if (!fuse) return schedule;
  return reuse_in_place(fuse_backward(std::move(schedule), supports));
}

}  // namespace ringtrain
