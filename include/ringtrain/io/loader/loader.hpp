#pragma once
// Room `io`: images in, checkpoints out. `dataset` opens labelled images by index, `image` decodes
// and crops, `loader` fills batches ahead of training; `checkpoint` reads, `checkpoint_writer` is
// the helper process that writes, `lease` makes a folder one run's own.
//
// Threads: loader threads read and decode; the main thread takes batches.
//
// Collective: nothing. Which samples a batch holds depends on seed and position alone.
//
// Files are hostile: every size is checked before memory is taken for it.
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "ringtrain/base/batch.hpp"
#include "ringtrain/base/clock.hpp"
#include "ringtrain/io/dataset/dataset.hpp"
#include "ringtrain/io/image/augmentation.hpp"

namespace ringtrain::io {

/// A rank's places in each global batch: [first, first + count).
struct BatchShard {
  int first = 0, count = 0;
};
/// Splits a global batch; the first ranks get one more where it does not divide.
BatchShard share_of(int global_batch, int rank, int ranks);

struct LoaderOptions {
  /// training: the data set shuffled anew each epoch, augmented, without end; batches straddle
  /// epochs. evaluation: once, in order, not augmented; the last batch is filled
  /// up with places of label -1, so that every rank gets equally many batches of full size.
  Split mode = Split::training;
  std::uint64_t seed = 0;
  /// training: classes come equally often. Samples of rare ones come again in an epoch, each time
  /// augmented otherwise. Every label must be known.
  bool balance = false;
  /// training: samples of the endless order that all ranks have already used; where to resume.
  std::uint64_t start = 0;
  /// training: how many batches next() is asked for. None beyond them is read.
  std::uint64_t most_batches = std::numeric_limits<std::uint64_t>::max();
  int global_batch = 1;    ///< samples of all ranks in one micro-step
  BatchShard share{0, 1};  ///< this rank's part of it, not empty
  int micro_steps = 1;     ///< of a step, whose images are mixed with each other
  int threads = 1;
  int slots = 0;  ///< batches that may be ready ahead; 0: two more than threads
  Augmentation augmentation{};
  /// Of the batch; 1: grey levels, as of ITU-R 601; 4: with opacity, which is scaled by itself.
  int channels = Image::channels;
  /// Is told of each batch made, by the number of its thread. Called by that thread; empty: nobody
  /// asks.
  std::function<void(int thread, const TimeSpan& batch)> on_batch = {};
  /// Is called by next() while it waits and reads are tried again: it does not hang. Empty: nobody
  /// asks.
  std::function<void()> on_retry = {};
  /// Is given a line for the user where a read is tried again, on the thread that reads; empty:
  /// standard error has it.
  std::function<void(const std::string& line)> report = {};
};

/// Fills batches ahead of the trainer. Which samples, pixels and colour jitter a batch holds
/// depends on seed and position alone: not on threads, slots, ranks or time. All members are for
/// one thread; `dataset` must outlive the loader.
class Loader {
 public:
  Loader(const Dataset& dataset, const LoaderOptions& options);
  /// Waits no longer than it takes to finish the samples being read.
  ~Loader();

  /// Waits for the next batch; null after the last of an evaluation, or of most_batches. The batch
  /// is valid until the next call, which recycles its memory. Rethrows what failed in a loader
  /// thread, such as a file that the disk does not give, however often it is tried (see
  /// ReadRetries), and throws Error(Exit::data) where nothing can be read in place of a sample.
  const Batch* next();

  /// Batches of one evaluation, equal on all ranks.
  std::uint64_t evaluation_batches() const;

  /// The samples that could not be read, each once however often it is met, and what
  /// add_unreadable() was told of. In training the next readable one takes the place (under the
  /// original's number); in evaluation the place counts for nothing (label -1).
  const std::set<std::uint64_t>& unreadable() const;
  /// Whether take_unreadable() would give any.
  bool has_new_unreadable() const;
  /// Those that came to unreadable() through next() since the last call.
  std::vector<std::uint64_t> take_unreadable();
  /// Samples that others could not read: when they are met they are no news.
  void add_unreadable(std::span<const std::uint64_t> samples);
  /// What to tell the user about those that were news, the first ten since the last call.
  std::vector<std::string> take_events();
  /// The last of all such lines; empty: there was none.
  const std::string& last_event() const;
  /// Why `sample` of the batch that next() returned last could not be read; empty: it could.
  std::string why_unreadable(std::uint64_t sample) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ringtrain::io
