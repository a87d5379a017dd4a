#include "train/loop/evaluator.hpp"

namespace ringtrain::train {

void Evaluator::evaluate_at(const Position& position) {
  parts_.control.share_save_s(parts_.session);  // so that all ranks end it at the same time
  const auto ask = [&] {
    for (Hook* const hook : hooks_) hook->between_batches(position);
    return parts_.control.wanted();
  };
  const auto begin = metrics::Timeline::Clock::now();
  const Evaluation result = evaluate(
      parts_.engine.evaluation(), *parts_.plan.evaluation,
      parts_.plan.loader(io::Split::evaluation), parts_.session, ask,
      [&](const host::StepRequest& all) { parts_.control.agree(all); }, parts_.progress);
  parts_.progress.record(metrics::Phase::evaluation,
                         {begin, metrics::Timeline::Clock::now(), position.step});
  if (result.whole) evaluated_step_ = position.step;
  for (Hook* const hook : hooks_) hook->evaluated(position, result);
}

}  // namespace ringtrain::train
