#include "ringtrain/model/passes.hpp"

namespace ringtrain {

Schedule make_schedule(const Graph& graph, int batch, Mode mode, float label_smoothing,
                       const Supports& supports, bool fuse) {
  // A BatchNorm that will be in pieces need not be there as a whole.
  const Supports whole_or_pieces = [&](const Schedule& tensors, const Step& step) {
    return supports(tensors, step) || splits(tensors, step, supports);
  };
  Schedule schedule = lower(graph, batch, mode, label_smoothing);
  if (fuse) {
    schedule = fuse_forward(std::move(schedule), whole_or_pieces);
    schedule = merge_convolutions(std::move(schedule), whole_or_pieces);
  }
  if (mode == Mode::evaluation)
    return fuse ? join_in_place(std::move(schedule), supports) : schedule;
  schedule = differentiate(std::move(schedule));
  if (!fuse) return schedule;
  schedule = fuse_backward(std::move(schedule), whole_or_pieces);
  schedule = split_batch_norm(std::move(schedule), supports);
  schedule = fuse_convolutions(std::move(schedule), supports);
  schedule = pair_batch_norms(std::move(schedule), supports);
  schedule = join_in_place(std::move(schedule), supports);
  return reuse_in_place(std::move(schedule));
}

}  // namespace ringtrain
