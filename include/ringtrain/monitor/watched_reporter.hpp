#pragma once
#include <memory>
#include <string>
#include <utility>

#include "ringtrain/metrics/reporter/reporter.hpp"
#include "ringtrain/monitor/phase_scope.hpp"

namespace ringtrain::monitor {

/// Tells the watchdog when the main thread waits for whoever reads the output: a user may have
/// stopped the terminal, which is no fault of what comes before and after.
class WatchedReporter final : public metrics::Reporter {
 public:
  WatchedReporter(std::unique_ptr<metrics::Reporter> reporter, Progress& progress)
      : reporter_(std::move(reporter)), progress_(progress) {}

  void note(std::string_view line) override {
    const PhaseInterruption interruption(progress_, metrics::Phase::output);
    reporter_->note(line);
  }
  void progress(const metrics::ProgressState& state) override {
    const PhaseInterruption interruption(progress_, metrics::Phase::output);
    reporter_->progress(state);
  }
  void write(const metrics::Record& record) override {
    const PhaseInterruption interruption(progress_, metrics::Phase::output);
    reporter_->write(record);
  }

 private:
  const std::unique_ptr<metrics::Reporter> reporter_;
  Progress& progress_;
};

}  // namespace ringtrain::monitor
