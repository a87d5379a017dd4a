#pragma once
#include <string>

#include "metrics/record_sink.hpp"
#include "ringtrain/base/file.hpp"

namespace ringtrain::metrics {

/// Appends one JSON object a line to a file; each line is in the file when the call returns. A
/// write that fails is reported once and training goes on; later records are tried again.
class JsonLines final : public RecordSink {
 public:
  /// Throws Error(Exit::storage) when the file cannot be opened: before training that can still be
  /// mended. A resumed run appends to its file, after a line that a crash left unfinished too.
  JsonLines(const std::string& path, Warn warn);

  void write(const StartRecord& record) override;
  void write(const StepRecord& record) override;
  void write(const EvalRecord& record) override;
  void write(const CheckpointRecord& record) override;
  void write(const EventRecord& record) override;
  void write(const ScalingResult& record) override;
  void write(const ScalingForecast& record) override;
  void write(const EndRecord& record) override;

 private:
  void append(const std::string& record);

  std::string path_;
  FileDescriptor file_;
  Warn warn_;
  bool torn_ = false;  // the file does not end with a whole line
  bool warned_ = false;
};

}  // namespace ringtrain::metrics
