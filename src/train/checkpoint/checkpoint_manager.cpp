#include "train/checkpoint/checkpoint_manager.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "ringtrain/base/error.hpp"

namespace ringtrain::train {

CheckpointManager::CheckpointManager(io::CheckpointWriter writer, Snapshotter& state,
                                     io::CheckpointMetadata constant, config::CheckpointEvery every,
                                     std::uint64_t epoch_samples, Report report, SharedSaves shared)
    : writer_(std::move(writer)),
      state_(state),
      constant_(std::move(constant)),
      every_(every),
      epoch_samples_(epoch_samples),
      report_(std::move(report)),
      shared_(std::move(shared)) {
  for (const io::SnapshotBuffers slot : writer_.slots()) state_.prepare(slot);
}

void CheckpointManager::offer(const Position& position) {
  if (writer_.idle()) return;
  report_events(writer_.poll());
  if (writer_.lost()) throw *writer_.failure();
  Stopwatch watch;
  hand_over();
  give_up_late_copy();
  stalled_s_ += watch.lap();
  if (!state_.together() && (requested_ || due(position))) start_save(position);
}

bool CheckpointManager::wants(const Position& next) {
  if (writer_.idle() || !state_.together()) return false;
  const Position saved{next.step + static_cast<std::uint64_t>(state_.steps_to_start())};
  const bool by_steps = every_.steps > 0 && due(saved);
  const bool asked = next.step <= wanted_;  // for one that has not started
  if (!by_steps && (asked || !(requested_ || due(saved)))) return false;
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

bool CheckpointManager::can_save(const Position& position) {
  return !writer_.idle() && last_step_ != position.step && hand_over() &&
         !writer_.begin_save().empty();
}

// All ranks count the same copies, also one that rank 0 cannot take any more.
void CheckpointManager::save_together(const Position& position) {
  if (writer_.idle() || !start_save(position)) state_.start({});
}

// A save that waited for ever would be the last one.
void CheckpointManager::give_up_late_copy() {
  if (!copying_ || !state_.together() || copying_watch_.elapsed() < shared_.patience_s) return;
  const std::string why = give_up_copy();
  ++given_up_;
  last_step_.reset();
  const std::uint64_t step = std::exchange(copying_, std::nullopt)->step;
  report_events({{.kind = io::SaveEvent::Kind::failed,
                  .step = step,
                  .text = fmt::format("checkpoint of step {} not saved: {} within {} s", step, why,
                                      shared_.patience_s)}});
}

void CheckpointManager::request(const Position& position) {
  if (writer_.idle()) return tell("SIGUSR1: nothing can be saved without --checkpoint-dir");
  const auto failure = writer_.failure();
  if (last_step_ == position.step && !failure)
    return tell(fmt::format("SIGUSR1: step {} is saved, or being saved, already", position.step));
  if (failure) last_step_.reset();
  requested_ = true;
  if (!state_.together()) start_save(position);
  if (!requested_) return tell(fmt::format("SIGUSR1: saving step {}", position.step));
  const int steps = 1 + state_.steps_to_start();
  const std::string first =
      state_.together() ? fmt::format("{} step{} from now, or ", steps, steps == 1 ? "" : "s") : "";
  tell(fmt::format("SIGUSR1: a checkpoint follows {}as soon as one before it is written", first));
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

void CheckpointManager::save(const Position& position) {
  if (!state_.together())
    start_save(position);
  else if (rank_0_says(can_save(position)))
    save_together(position);
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

// Whether no copy is under way any more.
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
  said_ = false;
  if (!writer_.idle())
    finish_or_throw(position, deadline, hurry);
  else if (rank_0_says(false))
    state_.start({});
  return std::nullopt;
} catch (const Error& failure) {
  if (!said_) rank_0_says(false);  // the other ranks wait for it
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
  const bool handed_over =
      save_last_or_close(position, deadline, copied && !under_way) || under_way;
  if (copied) state_.release();
  // Asked once in any case: what was handed over just now may be durable already.
  report_events(writer_.close(deadline.left()));
  if (const auto failure = writer_.failure()) throw *failure;
  if (!handed_over)
    throw Error(Exit::storage, "final checkpoint",
                copied ? "the saves before it did not become durable" : late);
}

// What is under way is told, and the writer ended, also where the last copy comes too late.
bool CheckpointManager::save_last_or_close(const Position& position, const Deadline& deadline,
                                           bool wanted) try {
  return save_last(position, deadline, wanted);
} catch (const Error&) {
  report_events(writer_.close(deadline.left()));
  throw;
}

bool CheckpointManager::wait_for_copy(const Deadline& deadline) {
  while (!state_.done()) {
    if (deadline.over()) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return true;
}

// Returns why. A GPU's may never end: its targets stay.
std::string CheckpointManager::give_up_copy() {
  std::string why = state_.lateness();
  if (state_.together()) state_.release();
  return why;
}

// Where the ranks have shards, the others hear once whether there is such a save.
bool CheckpointManager::save_last(const Position& position, const Deadline& deadline, bool wanted) {
  const auto copy = [&](io::SnapshotBuffers slot) {
    rank_0_says(true);
    state_.start(slot);
    if (!wait_for_copy(deadline)) throw Error(Exit::storage, "final checkpoint", give_up_copy());
  };
  const bool saved = wanted && writer_.save(metadata(position), copy, deadline.left());
  if (!said_) rank_0_says(false);
  return saved;
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
  return at(constant_, position, epoch_samples_);
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
