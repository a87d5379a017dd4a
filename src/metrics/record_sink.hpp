#pragma once
#include <functional>
#include <string_view>

#include "ringtrain/metrics/records.hpp"

namespace ringtrain::metrics {

/// Keeps what happens in a run, in a file: --metrics, --tensorboard, --report. On rank 0's main
/// thread. Nothing thrown: a file that cannot be written is told once, and training goes on.
class RecordSink {
 public:
  using Warn = std::function<void(std::string_view)>;

  virtual ~RecordSink() = default;
  virtual void write(const StartRecord& record) = 0;
  virtual void write(const StepRecord& record) = 0;
  virtual void write(const EvalRecord& record) = 0;
  virtual void write(const CheckpointRecord& record) = 0;
  virtual void write(const EventRecord& record) = 0;
  virtual void write(const ScalingResult& record) = 0;  ///< of --baseline
  virtual void write(const ScalingForecast& record) = 0;
  virtual void write(const EndRecord& record) = 0;
};

}  // namespace ringtrain::metrics
