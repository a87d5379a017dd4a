#pragma once
// Room `train/checkpoint`: when the training state is saved, and how a run takes one up. The
// writer of `io` puts the bytes on disk; `state` knows which they are.
//
// Thread: main. Saves of one rank's state are not collective, those of shards are, as is resume().
//
// A failed save is told and counted, and training goes on.
#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ringtrain/base/clock.hpp"
#include "ringtrain/base/error.hpp"
#include "ringtrain/config/options.hpp"
#include "ringtrain/io/checkpoint_writer/checkpoint_writer.hpp"
#include "train/engine/stepper.hpp"
#include "train/state/snapshot.hpp"

namespace ringtrain::train {

/// `constant` at `position`.
io::CheckpointMetadata at(const io::CheckpointMetadata& constant, const Position& position,
                          std::uint64_t epoch_samples);

/// What became of the saves of a run.
struct SaveCounts {
  std::uint64_t saved = 0, failed = 0;
  /// That were due while no slot was free: by steps, each; by time, one for each interval.
  std::uint64_t skipped = 0;
};

/// Saves the training state when it is due. Only rank 0's writer works, and only rank 0 looks at
/// the clock: a save needs no other rank, so nothing has to be agreed.
class CheckpointManager {
 public:
  /// What to tell the user about a save; `stall_s` is what its copy cost the step loop.
  using Report = std::function<void(const io::SaveEvent&, double stall_s)>;

  /// `constant` holds what does not change in a run; `state` outlives the object.
  CheckpointManager(io::CheckpointWriter writer, Snapshotter& state,
                    io::CheckpointMetadata constant, config::CheckpointEvery every,
                    std::uint64_t epoch_samples, Report report);
  virtual ~CheckpointManager() = default;

  /// Called after every step. If a save is due and a slot is free, a copy into shared memory is
  /// started; complete ones are handed over. Throws Error when the writer is gone for good: what
  /// comes after that would be trained for nothing.
  void offer(const Position& position);
  /// Saves whether that is due or not. Where no slot is free, that is told and counted only if a
  /// save is due. Collective where the ranks have shards.
  virtual void save(const Position& position) { start_save(position); }
  /// Saves `position` as the best so far, also where it was saved before, and waits for a slot
  /// until then. Saves from then on say `best` (CheckpointMetadata::best). False: no slot was free,
  /// which is told; rank 0's word counts. Collective where the ranks have shards.
  virtual bool save_best(const Position& position, const std::string& best,
                         const Deadline& deadline);
  /// Whether the last of those has failed, or was given up, since this was asked. Saves then say
  /// again what they said before it.
  bool take_best_failed() { return std::exchange(best_failed_, false); }
  /// Saves from here on say so: this evaluation was not the best.
  void set_best(const std::string& best);
  /// Whether rank 0 wants all ranks to save their shards steps_to_start() behind `next`, and is
  /// ready for them: no save is asked for that has not started, and no copy is under way.
  virtual bool wants(const Position& /*next*/) { return false; }
  int steps_to_start() const { return state_.steps_to_start(); }
  /// Saves the shards of all ranks, because rank 0 wanted it.
  virtual void save_together(const Position& /*position*/) {}
  /// From any thread, while training goes on: lets the writer save the last finished step should
  /// this process be killed before a later one is durable. False: no slot was free.
  bool save_if_killed();
  /// No more of that: the state is not to be trusted.
  void keep_nothing() { writer_.keep_nothing(); }
  /// Saves from here on say so (CheckpointMetadata::unreadable).
  void set_unreadable(std::vector<std::uint64_t> samples);
  /// A user asks for a save: of this step, or as soon after it as a slot is free. Both that and the
  /// end of the save are told; so is it where nothing can be saved.
  void request(const Position& position);
  /// Waits until the copy under way is handed over, so that what comes may take long: whether it
  /// was, by the deadline.
  bool settle(const Deadline& deadline);
  /// The save at the end of training: waits until it is durable. Returns why it is not, if so, by
  /// the deadline. `hurry`: saves that have not begun give way to it. Collective where the ranks
  /// have shards.
  virtual std::optional<Error> finish(const Position& position, const Deadline& deadline,
                                      bool hurry = false);

  /// What was told of the first save that was refused, because the state has a NaN or infinite
  /// value; empty: none was. Such a state stays one: the job is to end.
  const std::string& refused() const { return refused_; }
  SaveCounts counts() const { return {writer_.saved(), failed(), skipped_}; }
  /// The longest that a save took, with its copy; 0: there was none.
  double longest_save_s() const { return longest_save_s_; }
  /// Whether a save is under way, as far as offer() has heard.
  bool saving() const { return copying_ || started_ > writer_.saved() + failed(); }
  /// Seconds that offer() took so far.
  double stalled_s() const { return stalled_s_; }

 protected:
  /// Between steps, when events are told and a complete copy is handed over.
  virtual void save_if_due(const Position& position);
  /// Begins what request() is for. Returns what the user is told.
  virtual std::string start_request(const Position& position);
  virtual void before_last_copy() {}
  /// Gives up a copy that is not done in time. Returns why. A GPU's may never end: its targets
  /// stay.
  virtual std::string give_up_copy() { return state_.lateness(); }

  bool idle() const { return writer_.idle(); }
  bool due(const Position& position) const;
  bool due_by_steps() const { return every_.steps > 0; }
  bool requested() const { return requested_; }
  bool start_save(const Position& position);
  /// Waits until it can, though this step was saved before. False: not in time.
  bool await_best(const Position& position, const Deadline& deadline);
  void begin_best(const Position& position, const std::string& best);
  bool can_save(const Position& position);
  /// Whether no copy is under way any more.
  bool hand_over();
  /// Whether a copy has been under way for so many seconds.
  bool copies_since(double seconds) const {
    return copying_ && copying_watch_.elapsed() >= seconds;
  }
  /// The save under way has failed.
  void give_up_save(const std::string& why);
  /// `why`: empty is that of the copy or of the slots.
  void report_skipped(const Position& position, std::string why = {});
  Snapshotter& state() { return state_; }

 private:
  io::CheckpointMetadata metadata(const Position& position) const;
  std::uint64_t failed() const { return writer_.failed() + given_up_; }
  bool start(const Position& position);
  bool save_last(const Position& position, const Deadline& deadline);
  bool save_last_or_close(const Position& position, const Deadline& deadline);
  void finish_or_throw(const Position& position, const Deadline& deadline, bool hurry);
  void report_events(const std::vector<io::SaveEvent>& events);
  void tell(const std::string& line) {
    report_({.kind = io::SaveEvent::Kind::note, .text = line}, 0);
  }

  io::CheckpointWriter writer_;
  Snapshotter& state_;
  std::optional<io::CheckpointMetadata> copying_;  // what the copy under way will be
  io::CheckpointMetadata constant_;                // guarded by constant_mutex_
  mutable std::mutex constant_mutex_;
  std::optional<std::uint64_t> best_step_;  // likewise: this run's best evaluation was of it
  std::string best_before_;                 // what saves said before the last save of a best one
  bool best_failed_ = false;
  config::CheckpointEvery every_;
  std::uint64_t epoch_samples_;
  Report report_;
  std::uint64_t given_up_ = 0;
  Stopwatch copying_watch_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
  std::optional<std::uint64_t> last_step_;  // whose copy was started last
  bool skipping_ = false;
  std::uint64_t started_ = 0, skipped_ = 0, skipped_step_ = 0;
  Stopwatch since_skip_;
  bool requested_ = false;  // and not started yet
  std::string refused_;
  std::atomic<std::uint64_t> kept_step_{0};
  std::set<std::uint64_t> answering_;  // steps of saves under way that were asked for
  double stalled_s_ = 0, last_stall_s_ = 0, last_copy_s_ = 0, longest_save_s_ = 0;
};

}  // namespace ringtrain::train
