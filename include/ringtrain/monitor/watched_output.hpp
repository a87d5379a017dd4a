#pragma once
#include <memory>
#include <string>
#include <utility>

#include "ringtrain/metrics/reporter/reporter.hpp"
#include "ringtrain/monitor/phase_scope.hpp"

namespace ringtrain::monitor {

/// An Output that tells the watchdog when the main thread waits for whoever reads it: a user may
/// have stopped the terminal, which is no fault of what comes before and after.
class WatchedReporter final : public metrics::Reporter {
 public:
  WatchedReporter(std::unique_ptr<metrics::Reporter> output, Progress& progress)
      : output_(std::move(output)), progress_(progress) {}

  void note(std::string_view line) override { watched()->note(line); }
  void start(const metrics::StartRecord& record) override { watched()->start(record); }
  void step(const metrics::StepRecord& record) override { watched()->step(record); }
  void progress(const metrics::ProgressState& state) override { watched()->progress(state); }
  void eval(const metrics::EvalRecord& record) override { watched()->eval(record); }
  void checkpoint(const metrics::CheckpointRecord& record) override {
    watched()->checkpoint(record);
  }
  void event(const metrics::EventRecord& record) override { watched()->event(record); }
  void baseline(const metrics::ScalingResult& record) override { watched()->baseline(record); }
  void links(const metrics::ScalingForecast& record) override { watched()->links(record); }
  void end(const metrics::EndRecord& record, const metrics::Summary& summary) override {
    watched()->end(record, summary);
  }

 private:
  class Watched {
   public:
    Watched(metrics::Reporter& output, Progress& progress)
        : output_(output), interruption_(progress, metrics::Phase::output) {}
    metrics::Reporter* operator->() const { return &output_; }

   private:
    metrics::Reporter& output_;
    const PhaseInterruption interruption_;
  };
  Watched watched() { return {*output_, progress_}; }

  const std::unique_ptr<metrics::Reporter> output_;
  Progress& progress_;
};

}  // namespace ringtrain::monitor
