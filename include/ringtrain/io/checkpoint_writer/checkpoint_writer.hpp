#pragma once
// Room `io/checkpoint_writer`: saves while training goes on. A process of its own writes what rank
// 0 copies into shared memory; it outlives a killed trainer, and another one takes over where it
// dies (docs/internals/checkpoint-writer.md).
//
// Threads: the trainer's end belongs to one thread, but for save_if_killed(). Not collective.
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/late_library.hpp"
#include "ringtrain/io/checkpoint/checkpoint.hpp"

namespace ringtrain::io {

class WriterProcess;

struct WriterOptions {
  std::string run_id;                     ///< at most 39 printable characters
  int keep = 3;                           ///< intact checkpoints that retention leaves
  std::chrono::seconds open_timeout{30};  ///< for a file system that does not answer
  std::chrono::seconds slow_after{20};    ///< a save that takes longer is reported while it lasts
  /// For the saves under way when this process is killed, in the helper; also how long the helper
  /// of a killed run, which still holds the directory, is waited for.
  double last_save_timeout_s = 120;
  /// Helpers that may take over from one that died within ten minutes; the next death is a fault,
  /// and so is a second one in the same save.
  int takeovers = 3;
  std::function<void(const std::string&)> tell{};  ///< that it is waited for; every ten seconds
};

/// What became of a save, for log and metrics.
struct SaveEvent {
  enum class Kind {
    saved,     ///< `file` is durable
    failed,    ///< nothing was published; training can go on
    skipped,   ///< no slot was free, or it gave way: nothing was saved of this step
    slow,      ///< still not durable after WriterOptions::slow_after
    note,      ///< worth a log line
    replaced,  ///< the helper process died, and another one took over
    alone,     ///< should the helper die, no other one can take over any more
    lost,      ///< the helper process died, and none takes over: no more checkpoints
    moved,     ///< the directory's path no longer leads to it; `file` does, empty: none does
    back,      ///< it does again
  };
  Kind kind = Kind::note;
  std::uint64_t step = 0;
  std::string file{};  ///< name in the directory; of `moved` the directory's path
  std::uint64_t bytes = 0;
  double seconds = 0;  ///< the writer's time for it, until durable
  std::string text{};  ///< what happened and what to do, for all kinds but saved
  bool not_finite =
      false;  ///< failed, as the state has a NaN or infinite value: it may not be saved
};

/// The buffers of the state that is to be saved, in shared memory, as StateLayout::buffers says.
using SnapshotBuffers = std::span<const std::span<float>>;

/// Saves the trainer's state while training goes on: the state is copied into one of two
/// shared-memory slots, the helper process writes it. If that dies, another one takes over the
/// directory and what is in the slots: saves that it had not finished are written again. Only rank
/// 0 has a working one; the others' idle object does nothing, so the step loop needs no rank test.
/// Belongs to one thread, but for save_if_killed(), whose copy the other calls wait for. No call
/// but the constructor, save() and close() waits for anything else or touches a file.
class CheckpointWriter {
 public:
  /// Idle.
  CheckpointWriter();
  /// Makes the helper take `directory` (created if missing) and hold it, remove temporaries of dead
  /// runs and check that it can hold two more checkpoints; allocates the slots. Waits for an owner
  /// that finishes or gives no sign of life. Idle if `process`, which must outlive it, is. Throws
  /// Error(Exit::locked) naming the owner, or Error(Exit::storage).
  CheckpointWriter(WriterProcess& process, const std::filesystem::path& directory,
                   const StateLayout& layout, WriterOptions options);
  CheckpointWriter(CheckpointWriter&&) noexcept;
  CheckpointWriter& operator=(CheckpointWriter&&) noexcept;
  ~CheckpointWriter();

  bool idle() const { return impl_ == nullptr; }
  /// All slots that states are copied into, free or not. They stay where they are.
  std::vector<SnapshotBuffers> slots() const;

  /// The training that all saves belong to, as CheckpointFile::lineage() has it; before the first
  /// save. Retention counts and deletes its files only. Without this call it is empty.
  void set_lineage(const std::string& lineage);

  /// Retention never deletes this file: the one that training was resumed from.
  void protect(const std::string& file_name);

  /// Lets `copy` fill a free slot and hands it to the helper. Returns false when both slots
  /// are still being written.
  bool try_save(const CheckpointMetadata& metadata,
                const std::function<void(SnapshotBuffers)>& copy);
  /// The same in two calls, for copies that run on a device: begin_save() gives a free slot, or
  /// nothing; once it is filled, submit_save() hands it over.
  SnapshotBuffers begin_save();
  void submit_save(const CheckpointMetadata& metadata);
  /// Saves that were handed over and have not begun give way to the last one: they are skipped.
  void hurry();
  /// For the last save: waits up to `timeout` for a free slot.
  bool save(const CheckpointMetadata& metadata, const std::function<void(SnapshotBuffers)>& copy,
            std::chrono::duration<double> timeout);

  /// From any thread: lets `copy` fill a free slot with a state that the helper saves only if this
  /// process ends before close() and before a later state is durable. `copy` returns what the state
  /// is, or nothing: then nothing is kept. Returns false where no slot is free. Replaces what was
  /// kept before, and keeps one slot taken.
  bool save_if_killed(
      const std::function<std::optional<CheckpointMetadata>(SnapshotBuffers)>& copy);

  /// Drops what save_if_killed() keeps, and from now on it keeps nothing.
  void keep_nothing();

  /// What happened since the last call. Call it every step: it also frees the slots.
  std::vector<SaveEvent> poll();
  /// Waits up to `timeout` for the saves under way, then gives the directory back, for which it
  /// waits two seconds more at most.
  std::vector<SaveEvent> close(std::chrono::duration<double> timeout);
  /// Why the state handed over last is not durable, if so: the job should end with this error.
  std::optional<Error> failure() const;

  /// Whether the helper process is gone for good, or another run has taken the directory over
  /// (Exit::locked): nothing can be saved any more, failure() says why, and the job should end.
  bool lost() const;
  std::uint64_t saved() const;
  /// With those that were not durable when close() gave up.
  std::uint64_t failed() const;

 private:
  class Impl;
  std::unique_lock<std::mutex> hold() const;
  std::unique_ptr<Impl> impl_;
};

LibraryVersion hdf5_version();

}  // namespace ringtrain::io
