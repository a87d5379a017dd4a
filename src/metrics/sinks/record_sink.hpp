#pragma once
// Room `metrics/sinks`: where records are kept: JSON lines (--metrics), TensorBoard's event files,
// a page with plots (--report). Each is a RecordSink. A new kind of record has its place in each,
// which the compiler asks for.
//
// Threads: main, on rank 0.
// Collective: nothing.
#include <sys/stat.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "ringtrain/base/file.hpp"
#include "ringtrain/metrics/records.hpp"

namespace ringtrain::metrics {

/// Keeps what happens in a run, in a file: --metrics, --tensorboard, --report. On rank 0's main
/// thread. Nothing thrown: a file that cannot be written is told once, and training goes on.
class RecordSink {
 public:
  using Warn = std::function<void(std::string_view)>;

  virtual ~RecordSink() = default;
  virtual void write(const Record& record) = 0;
};

/// Notices that an open file was deleted.
class DeletionWatch {
 public:
  DeletionWatch() = default;
  explicit DeletionWatch(int file) : file_(file), has_name_(still_has_name()) {}
  /// Once, where it had a name and has none any more.
  bool noticed() { return has_name_ && !(has_name_ = still_has_name()); }

 private:
  bool still_has_name() const {
    struct stat status {};
    return ::fstat(file_, &status) != 0 || status.st_nlink > 0;
  }

  int file_ = -1;
  bool has_name_ = false;
};

/// Appends one JSON object a line to a file; each line is in the file when write() returns. A write
/// that fails is reported once and training goes on; later records are tried again. A resumed run
/// appends to its file, after a line that a crash left unfinished too.
/// Throws Error(Exit::storage) when the file cannot be opened: before training that can still be
/// mended.
std::unique_ptr<RecordSink> make_json_lines(const std::string& path, RecordSink::Warn warn);

/// Writes what happens as scalars and texts for TensorBoard, into a new event file in `directory`,
/// which is made if need be. A resumed run hides what an earlier one wrote of the steps behind its
/// start. Each record is in the file when write() returns.
/// Throws Error(Exit::storage) when the file cannot be made.
std::unique_ptr<RecordSink> make_tensorboard(const std::string& directory, RecordSink::Warn warn);

/// Writes `path`, one HTML page that needs nothing else: throughput with what happened, where the
/// time of a step went, loss and accuracy, ranks, scaling, checkpoints, events, configuration. It
/// is written anew after an evaluation, at the end, and else once a minute; a reader sees one whole
/// page or the other.
/// Throws Error(Exit::storage) when the file cannot be made.
std::unique_ptr<RecordSink> make_report(const std::string& path, RecordSink::Warn warn);

}  // namespace ringtrain::metrics
