#include "train/checkpoints.hpp"

#include <fmt/core.h>

#include <thread>

#include "ringtrain/base/error.hpp"
#include "ringtrain/train/stopwatch.hpp"

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

bool Checkpoints::settle(double timeout_s) {
  const Stopwatch watch;
  while (!hand_over()) {
    if (watch.elapsed() > timeout_s) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return true;
}

void Checkpoints::finish(const Position& position, double timeout_s) {
  if (writer_.idle()) return;
  Stopwatch watch;
  const bool copied = settle(timeout_s);
  report_events(writer_.poll());
  const bool under_way = copied && last_step_ == position.step && !writer_.failure();
  const bool handed_over = under_way || (copied && save_last(position, timeout_s));
  if (copied) state_.release();
  // At least a moment: what was handed over just now may be durable already.
  const std::chrono::duration<double> rest(std::max(timeout_s - watch.lap(), 0.0));
  report_events(writer_.close(rest));
  if (const auto failure = writer_.failure()) throw *failure;
  if (!handed_over)
    throw Error(Exit::storage, "final checkpoint",
                copied ? "the saves before it did not become durable"
                       : "its copy out of the GPU did not end in time");
}

bool Checkpoints::save_last(const Position& position, double timeout_s) {
  bool copied = false;
  const auto copy = [&](SnapshotBuffers slot) {
    const Stopwatch watch;
    state_.start(slot);
    while (!(copied = state_.done()) && watch.elapsed() < timeout_s)
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    if (!copied)
      throw Error(Exit::storage, "final checkpoint", "its copy out of the GPU did not end in time");
  };
  return writer_.save(metadata(position), copy, std::chrono::duration<double>(timeout_s));
}

CheckpointMetadata Checkpoints::metadata(const Position& position) const {
  CheckpointMetadata now = constant_;
  now.step = position.step;
  now.position = position.samples;
  now.epoch = position.samples / epoch_samples_;
  return now;
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
