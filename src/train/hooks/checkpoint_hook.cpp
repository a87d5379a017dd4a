#include "train/hooks/checkpoint_hook.hpp"

#include <utility>

#include "train/loop/trainer.hpp"

namespace ringtrain::train {
namespace {

constexpr double seen_stall_s = 1e-5;  // of a step, on a timeline

}  // namespace

void CheckpointHook::between_steps(Trainer& trainer) {
  const Position& position = trainer.position();
  if (control_.signals().signal() != 0) checkpoints_.save_if_killed();  // before it is told
  const double stalled_s = checkpoints_.stalled_s();
  const auto begin = metrics::Timeline::Clock::now();
  offer(position);
  if (checkpoints_.stalled_s() - stalled_s > seen_stall_s)
    progress_.record(metrics::Phase::checkpoint,
                     {begin, metrics::Timeline::Clock::now(), position.step});
}

// An evaluation may take long: what is saved is safe before.
void CheckpointHook::before_evaluation(const Position&) {
  progress_.enter(metrics::Phase::checkpoint);
  checkpoints_.settle(Deadline(patience_s_));
}

void CheckpointHook::offer(const Position& position) {
  if (std::exchange(saving_shards_, false)) checkpoints_.save_together(position);
  if (control_.take_save()) checkpoints_.request(position);
  checkpoints_.offer(position);
  if (checkpoints_.longest_save_s() > 0) control_.set_save_s(checkpoints_.longest_save_s());
}

}  // namespace ringtrain::train
