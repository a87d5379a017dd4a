#include "train/checkpoint/sharded_checkpoints.hpp"

#include <fmt/core.h>

namespace ringtrain::train {

void ShardedCheckpointManager::save(const Position& position) {
  if (rank_0_says(can_save(position))) save_together(position);
}

bool ShardedCheckpointManager::save_best(const Position& position, const std::string& best,
                                         const Deadline& deadline) {
  const bool saves = rank_0_says(await_best(position, deadline));
  if (!saves) return false;
  begin_best(position, best);
  save_together(position);
  return true;
}

bool ShardedCheckpointManager::wants(const Position& next) {
  if (idle()) return false;
  const Position saved{next.step + static_cast<std::uint64_t>(steps_to_start())};
  const bool by_steps = due_by_steps() && due(saved);
  const bool asked = next.step <= wanted_;  // for one that has not started
  if (!by_steps && (asked || !(requested() || due(saved)))) return false;
  // The other ranks start a copy over the one before, so that has to be done. A slot in use may be
  // free by then.
  const bool slot_later = by_steps && saved.step > next.step;
  const bool ready = !asked && hand_over() && (slot_later || can_save(saved));
  if (ready)
    wanted_ = saved.step;
  else
    report_skipped(saved, asked ? "the save before it has not started" : "");
  return ready;
}

// All ranks count the same copies, also one that rank 0 cannot take any more.
void ShardedCheckpointManager::save_together(const Position& position) {
  if (idle() || !start_save(position)) state().start({});
}

// A save that waited for ever would be the last one.
void ShardedCheckpointManager::save_if_due(const Position& /*position*/) {
  if (copies_since(patience_s_))
    give_up_save(fmt::format("{} within {} s", give_up_copy(), patience_s_));
}

std::string ShardedCheckpointManager::start_request(const Position& /*position*/) {
  const int steps = 1 + steps_to_start();
  return fmt::format(
      "a checkpoint follows {} step{} from now, or as soon as one before it is written", steps,
      steps == 1 ? "" : "s");
}

std::optional<Error> ShardedCheckpointManager::finish(const Position& position,
                                                      const Deadline& deadline, bool hurry) {
  said_ = false;
  if (idle()) {
    if (rank_0_says(false)) state().start({});
    return std::nullopt;
  }
  const auto failure = CheckpointManager::finish(position, deadline, hurry);
  if (!said_) rank_0_says(false);  // the other ranks wait for it
  return failure;
}

std::string ShardedCheckpointManager::give_up_copy() {
  std::string why = state().lateness();
  state().release();
  return why;
}

}  // namespace ringtrain::train
