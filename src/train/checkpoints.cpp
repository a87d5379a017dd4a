#include "train/checkpoints.hpp"

#include <fmt/core.h>

#include <thread>

#include "ringtrain/base/error.hpp"

namespace ringtrain {

Checkpoints::Checkpoints(CheckpointWriter writer, StateCopy& state, CheckpointMetadata constant,
                         CheckpointEvery every, std::uint64_t epoch_samples, Report report)
    : writer_(std::move(writer)),
      state_(state),
      constant_(std::move(constant)),
      every_(every),
      epoch_samples_(epoch_samples),
      report_(std::move(report)) {}

void Checkpoints::offer(const Position& position) {
  if (writer_.idle()) return;
  report_events(writer_.poll());
  Stopwatch watch;
  hand_over();
  stalled_s_ += watch.lap();
  if (due(position)) save(position);
}

void Checkpoints::save(const Position& position) {
  if (writer_.idle() || last_step_ == position.step) return;
  Stopwatch watch;
  const bool started = hand_over() && start(position);
  last_stall_s_ = watch.lap();
  stalled_s_ += last_stall_s_;
  if (!started) {
    // A save by time is tried again at the next step, so it is told once; one by steps is skipped.
    if (!skipping_ || every_.steps > 0)
      report_({.kind = SaveEvent::Kind::failed,
               .step = position.step,
               .text = (copying_ ? "the copy before it is not done"
                                 : "both slots are still being written") +
                       fmt::format(": nothing saved at step {}", position.step)},
              0);
    skipping_ = true;
    return;
  }
  skipping_ = false;
  last_ = std::chrono::steady_clock::now();
  last_step_ = position.step;
}

bool Checkpoints::start(const Position& position) {
  const SnapshotBuffers slot = writer_.begin_save();
  if (slot.empty()) return false;
  state_.start(slot);
  copying_ = metadata(position);
  hand_over();
  return true;
}

// Whether no copy is under way any more.
bool Checkpoints::hand_over() {
  if (!copying_) return true;
  if (!state_.done()) return false;
  writer_.submit_save(*copying_);
  copying_.reset();
  return true;
}

bool Checkpoints::settle(const Deadline& deadline) {
  while (!hand_over()) {
    if (deadline.over()) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return true;
}

void Checkpoints::finish(const Position& position, const Deadline& deadline) {
  if (writer_.idle()) return;
  const bool copied = settle(deadline);
  report_events(writer_.poll());
  const bool under_way = copied && last_step_ == position.step && !writer_.failure();
  const bool handed_over = under_way || (copied && save_last(position, deadline));
  if (copied) state_.release();
  // Asked once in any case: what was handed over just now may be durable already.
  report_events(writer_.close(deadline.left()));
  if (const auto failure = writer_.failure()) throw *failure;
  if (!handed_over)
    throw Error(Exit::storage, "final checkpoint",
                copied ? "the saves before it did not become durable"
                       : "its copy out of the GPU did not end in time");
}

bool Checkpoints::save_last(const Position& position, const Deadline& deadline) {
  const auto copy = [&](SnapshotBuffers slot) {
    state_.start(slot);
    while (!state_.done()) {
      if (deadline.over())
        throw Error(Exit::storage, "final checkpoint",
                    "its copy out of the GPU did not end in time");
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  };
  return writer_.save(metadata(position), copy, deadline.left());
}

CheckpointMetadata at(const CheckpointMetadata& constant, const Position& position,
                      std::uint64_t epoch_samples) {
  CheckpointMetadata now = constant;
  now.step = position.step;
  now.position = position.samples;
  now.epoch = position.samples / epoch_samples;
  return now;
}

CheckpointMetadata Checkpoints::metadata(const Position& position) const {
  return at(constant_, position, epoch_samples_);
}

bool Checkpoints::due(const Position& position) const {
  if (every_.steps > 0) return position.step % static_cast<std::uint64_t>(every_.steps) == 0;
  const std::chrono::duration<double> age = std::chrono::steady_clock::now() - last_;
  return age.count() >= every_.seconds;
}

void Checkpoints::report_events(std::vector<SaveEvent> events) {
  for (const SaveEvent& event : events) report_(event, last_stall_s_);
}

}  // namespace ringtrain
