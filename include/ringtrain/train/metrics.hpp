#pragma once
#include <functional>
#include <string>
#include <string_view>

#include "ringtrain/base/file_descriptor.hpp"
#include "ringtrain/train/records.hpp"

namespace ringtrain {

/// Appends one JSON object a line to a file; each line is in the file when the call returns. A
/// write that fails is reported once and training goes on; later records are tried again.
class Metrics {
 public:
  using Warn = std::function<void(std::string_view)>;

  /// Throws Error(Exit::storage) when the file cannot be opened: before training that can still be
  /// mended. A resumed run appends to its file, after a line that a crash left unfinished too.
  Metrics(const std::string& path, Warn warn);

  void write(const StartRecord& record);
  void write(const StepRecord& record);
  void write(const EvalRecord& record);
  void write(const CheckpointRecord& record);
  void write(const EventRecord& record);
  void write(const EndRecord& record);

 private:
  void append(const std::string& record);

  std::string path_;
  FileDescriptor file_;
  Warn warn_;
  bool torn_ = false;  // the file does not end with a whole line
  bool warned_ = false;
};

}  // namespace ringtrain
