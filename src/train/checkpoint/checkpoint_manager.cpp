#include "train/checkpoint/checkpoint_manager.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "ringtrain/base/error.hpp"

namespace ringtrain::train {

CheckpointManager::CheckpointManager(io::CheckpointWriter writer, Snapshotter& state,
                                     io::CheckpointMetadata constant, config::CheckpointEvery every,
                                     std::uint64_t epoch_samples, Report report)
    : writer_(std::move(writer)),
      state_(state),
      constant_(std::move(constant)),
      every_(every),
      epoch_samples_(epoch_samples),
      report_(std::move(report)) {
  for (const io::SnapshotBuffers slot : writer_.slots()) state_.prepare(slot);
}

void CheckpointManager::offer(const Position& position) {
  if (writer_.idle()) return;
  report_events(writer_.poll());
  if (writer_.lost()) throw *writer_.failure();
  Stopwatch watch;
  hand_over();
  stalled_s_ += watch.lap();
  save_if_due(position);
}

void CheckpointManager::save_if_due(const Position& position) {
  if (requested_ || due(position)) start_save(position);
}

bool CheckpointManager::can_save(const Position& position) {
  return !writer_.idle() && last_step_ != position.step && hand_over() &&
         !writer_.begin_save().empty();
}

void CheckpointManager::give_up_save(const std::string& why) {
  ++given_up_;
  last_step_.reset();
  const std::uint64_t step = std::exchange(copying_, std::nullopt)->step;
  report_events({{.kind = io::SaveEvent::Kind::failed,
                  .step = step,
                  .text = fmt::format("checkpoint of step {} not saved: {}", step, why)}});
}

void CheckpointManager::request(const Position& position) {
  if (writer_.idle()) return tell("SIGUSR1: nothing can be saved without --checkpoint-dir");
  const auto failure = writer_.failure();
  if (last_step_ == position.step && !failure)
    return tell(fmt::format("SIGUSR1: step {} is saved, or being saved, already", position.step));
  if (failure) last_step_.reset();
  requested_ = true;
  tell("SIGUSR1: " + start_request(position));
}

std::string CheckpointManager::start_request(const Position& position) {
  start_save(position);
  return requested_ ? "a checkpoint follows as soon as one before it is written"
                    : fmt::format("saving step {}", position.step);
}

bool CheckpointManager::save_if_killed() {
  return writer_.save_if_killed(
      [&](io::SnapshotBuffers slot) -> std::optional<io::CheckpointMetadata> {
        const auto position = state_.copy_last(slot);
        if (!position || position->step <= kept_step_) return std::nullopt;
        kept_step_ = position->step;
        return metadata(*position);
      });
}

bool CheckpointManager::start_save(const Position& position) {
  if (writer_.idle() || last_step_ == position.step) return false;
  Stopwatch watch;
  const bool started = hand_over() && start(position);
  last_stall_s_ = watch.lap();
  stalled_s_ += last_stall_s_;
  if (!started) {
    report_skipped(position);
    return false;
  }
  skipping_ = false;
  if (std::exchange(requested_, false)) answering_.insert(position.step);
  last_ = std::chrono::steady_clock::now();
  last_step_ = position.step;
  return true;
}

void CheckpointManager::set_best(const std::string& best) {
  const std::scoped_lock lock(constant_mutex_);
  constant_.best = best;
}

bool CheckpointManager::await_best(const Position& position, const Deadline& deadline) {
  if (writer_.idle()) return false;
  last_step_.reset();
  while (!can_save(position)) {
    report_events(writer_.poll());
    if (deadline.over() || writer_.lost()) {
      report_({.kind = io::SaveEvent::Kind::skipped,
               .step = position.step,
               .text = fmt::format("no slot is free: {} stays as it was before step {}",
                                   io::best_name, position.step)},
              0);
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

void CheckpointManager::begin_best(const Position& position, const std::string& best) {
  const std::scoped_lock lock(constant_mutex_);
  best_before_ = std::exchange(constant_.best, best);
  best_step_ = position.step;
}

bool CheckpointManager::save_best(const Position& position, const std::string& best,
                                  const Deadline& deadline) {
  if (writer_.idle()) return true;  // as rank 0 says, whose writer works
  if (!await_best(position, deadline)) return false;
  begin_best(position, best);
  return start_save(position);
}

// By time a save is tried again at every step, and in an evaluation at every batch.
void CheckpointManager::report_skipped(const Position& position, std::string why) {
  const bool counted = every_.steps > 0 ? skipped_step_ == position.step
                                        : skipping_ && since_skip_.elapsed() < every_.seconds;
  if (counted || !due(position)) return;
  skipping_ = true;
  skipped_step_ = position.step;
  since_skip_.lap();
  ++skipped_;
  if (why.empty()) why = copying_ ? "the copy before it is not done" : "no slot is free";
  report_({.kind = io::SaveEvent::Kind::skipped,
           .step = position.step,
           .text = fmt::format("{}: nothing saved at step {}", why, position.step)},
          0);
}

bool CheckpointManager::start(const Position& position) {
  const io::SnapshotBuffers slot = writer_.begin_save();
  if (slot.empty()) return false;
  state_.start(slot);
  copying_ = metadata(position);
  copying_watch_.lap();
  ++started_;
  hand_over();
  return true;
}

bool CheckpointManager::hand_over() {
  if (!copying_) return true;
  if (!state_.done()) return false;
  last_copy_s_ = copying_watch_.elapsed();
  writer_.submit_save(*copying_);
  copying_.reset();
  return true;
}

bool CheckpointManager::settle(const Deadline& deadline) {
  while (!hand_over()) {
    if (deadline.over()) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return true;
}

std::optional<Error> CheckpointManager::finish(const Position& position, const Deadline& deadline,
                                               bool hurry) try {
  if (!writer_.idle()) finish_or_throw(position, deadline, hurry);
  return std::nullopt;
} catch (const Error& failure) {
  return failure;
}

void CheckpointManager::finish_or_throw(const Position& position, const Deadline& deadline,
                                        bool hurry) {
  if (std::exchange(requested_, false)) answering_.insert(position.step);
  const bool copied = settle(deadline);
  const std::string late = copied ? "" : give_up_copy();
  report_events(writer_.poll());
  const bool under_way = copied && last_step_ == position.step && !writer_.failure();
  if (hurry && copied && !under_way) writer_.hurry();
  const bool handed_over = under_way || (copied && save_last_or_close(position, deadline));
  if (copied) state_.release();
  // Asked once in any case: what was handed over just now may be durable already.
  report_events(writer_.close(deadline.left()));
  if (const auto failure = writer_.failure()) throw *failure;
  if (!handed_over)
    throw Error(Exit::storage, "final checkpoint",
                copied ? "the saves before it did not become durable" : late);
}

// What is under way is told, and the writer ended, also where the last copy comes too late.
bool CheckpointManager::save_last_or_close(const Position& position, const Deadline& deadline) try {
  return save_last(position, deadline);
} catch (const Error&) {
  report_events(writer_.close(deadline.left()));
  throw;
}

bool CheckpointManager::save_last(const Position& position, const Deadline& deadline) {
  const auto copy = [&](io::SnapshotBuffers slot) {
    before_last_copy();
    state_.start(slot);
    while (!state_.done()) {
      if (deadline.over()) throw Error(Exit::storage, "final checkpoint", give_up_copy());
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  };
  return writer_.save(metadata(position), copy, deadline.left());
}

io::CheckpointMetadata at(const io::CheckpointMetadata& constant, const Position& position,
                          std::uint64_t epoch_samples) {
  io::CheckpointMetadata now = constant;
  now.step = position.step;
  now.position = position.samples;
  now.epoch = position.samples / epoch_samples;
  return now;
}

io::CheckpointMetadata CheckpointManager::metadata(const Position& position) const {
  const std::scoped_lock lock(constant_mutex_);
  io::CheckpointMetadata metadata = at(constant_, position, epoch_samples_);
  metadata.is_best = best_step_ == position.step;
  return metadata;
}

void CheckpointManager::set_unreadable(std::vector<std::uint64_t> samples) {
  const std::scoped_lock lock(constant_mutex_);
  constant_.unreadable = std::move(samples);
}

bool CheckpointManager::due(const Position& position) const {
  if (every_.steps > 0) return position.step % static_cast<std::uint64_t>(every_.steps) == 0;
  const std::chrono::duration<double> age = std::chrono::steady_clock::now() - last_;
  return age.count() >= every_.seconds;
}

void CheckpointManager::report_events(const std::vector<io::SaveEvent>& events) {
  for (const io::SaveEvent& event : events) {
    report_(event, last_stall_s_);
    if (event.not_finite && refused_.empty()) refused_ = event.text;
    skipped_ += event.kind == io::SaveEvent::Kind::skipped;
    const bool unsaved =
        event.kind == io::SaveEvent::Kind::failed || event.kind == io::SaveEvent::Kind::skipped;
    if (unsaved && best_step_ == event.step) {
      set_best(best_before_);
      best_step_.reset();
      best_failed_ = true;
    }
    if (unsaved && answering_.erase(event.step) > 0)
      tell(fmt::format("SIGUSR1: step {} could not be saved", event.step));
    if (event.kind != io::SaveEvent::Kind::saved) continue;
    longest_save_s_ =
        std::max(longest_save_s_, std::max(last_stall_s_, last_copy_s_) + event.seconds);
    if (answering_.erase(event.step) > 0)
      tell(
          fmt::format("SIGUSR1: the checkpoint of step {} is durable: {}", event.step, event.file));
  }
}

}  // namespace ringtrain::train
