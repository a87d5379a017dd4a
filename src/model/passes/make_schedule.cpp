#include <variant>

#include "ringtrain/model/passes.hpp"

namespace ringtrain::model {
namespace {

compute::Schedule over_all_ranks(compute::Schedule schedule) {
  for (compute::Step& step : schedule.steps)
    if (auto* norm = std::get_if<compute::BatchNormForward>(&step))
      norm->all_ranks = norm->training;
  return schedule;
}

}  // namespace

compute::Schedule make_schedule(const Graph& graph, int batch, Mode mode, float label_smoothing,
                                const Supports& supports, bool fuse, BatchNorms batch_norms) {
  // A BatchNorm that will be in pieces need not be there as a whole.
  const Supports whole_or_pieces = [&](const compute::Schedule& tensors,
                                       const compute::Step& step) {
    return supports(tensors, step) || splits(tensors, step, supports);
  };
  compute::Schedule schedule = lower(graph, batch, mode, label_smoothing);
  if (batch_norms == BatchNorms::all_ranks) schedule = over_all_ranks(std::move(schedule));
  if (fuse) {
    schedule = fuse_forward(std::move(schedule), whole_or_pieces, mode);
    schedule = pool_after_convolution(std::move(schedule));
    schedule = merge_convolutions(std::move(schedule), whole_or_pieces);
  }
  if (mode != Mode::training) return fuse ? join_in_place(std::move(schedule), supports) : schedule;
  schedule = differentiate(std::move(schedule));
  if (!fuse) return schedule;
  schedule = fuse_backward(std::move(schedule), whole_or_pieces);
  schedule = split_batch_norm(std::move(schedule), supports);
  schedule = fuse_convolutions(std::move(schedule), supports);
  schedule = pair_batch_norms(std::move(schedule), supports);
  schedule = join_in_place(std::move(schedule), supports);
  return reuse_in_place(std::move(schedule));
}

}  // namespace ringtrain::model
