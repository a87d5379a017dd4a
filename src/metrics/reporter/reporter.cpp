#include "ringtrain/metrics/reporter/reporter.hpp"

#include <unistd.h>

#include <chrono>
#include <utility>

#include "metrics/reporter/console.hpp"
#include "metrics/sinks/html_report.hpp"
#include "metrics/sinks/jsonl.hpp"
#include "metrics/sinks/tensorboard.hpp"
#include "ringtrain/base/file.hpp"
#include "ringtrain/host/terminal.hpp"

namespace ringtrain::metrics {
namespace {

std::chrono::system_clock::time_point now() { return std::chrono::system_clock::now(); }

class SilentReporter final : public Reporter {
 public:
  void note(std::string_view) override {}
  void start(const StartRecord&) override {}
  void step(const StepRecord&) override {}
  void progress(const ProgressState&) override {}
  void eval(const EvalRecord&) override {}
  void checkpoint(const CheckpointRecord&) override {}
  void event(const EventRecord& record) override {
    write_all(STDERR_FILENO, log_line(now(), record) + "\n");
  }
  void baseline(const ScalingResult&) override {}
  void links(const ScalingForecast&) override {}
  void end(const EndRecord&, const Summary&) override {}
};

class ActiveReporter final : public Reporter {
 public:
  ActiveReporter(const config::Options& options, ReporterSettings sinks, WorkProgress* progress)
      : quiet_(options.quiet), seconds_(sinks.seconds), console_(std::move(sinks)) {
    const auto open = [&](const std::string& path) {
      if (!path.empty()) at(progress, Work::open, path);
      return !path.empty();
    };
    if (open(options.metrics))
      sinks_.push_back(std::make_unique<JsonLines>(options.metrics, warn("metrics")));
    if (open(options.tensorboard))
      sinks_.push_back(make_tensorboard(options.tensorboard, warn("tensorboard")));
    if (open(options.report)) sinks_.push_back(make_report(options.report, warn("report")));
  }

  void note(std::string_view line) override { say(line); }
  void start(const StartRecord& record) override { keep(record); }
  void step(const StepRecord& record) override {
    say(log_line(now(), record, last_checkpoint()));
    keep(record);
  }
  void progress(const ProgressState& state) override { console_.progress(state); }
  void eval(const EvalRecord& record) override {
    say(log_line(now(), record));
    keep(record);
  }
  void checkpoint(const CheckpointRecord& record) override {
    checkpoint_ = {record.step, seconds_()};
    keep(record);
  }
  void event(const EventRecord& record) override {
    console_.warning(log_line(now(), record));
    keep(record);
  }
  void baseline(const ScalingResult& record) override { keep(record); }
  void links(const ScalingForecast& record) override { keep(record); }
  void end(const EndRecord& record, const Summary& summary) override {
    console_.close();
    say("\n" + summary_table(summary));
    keep(record);
  }

 private:
  void say(std::string_view line) {
    if (!quiet_) console_.line(line);
  }
  template <class Record>
  void keep(const Record& record) {
    for (const auto& sink : sinks_) sink->write(record);
  }
  RecordSink::Warn warn(const std::string& what) {
    return [this, what](std::string_view text) {
      console_.warning(log_line(now(), EventRecord{what, 0, std::string(text)}));
    };
  }
  std::optional<LastCheckpoint> last_checkpoint() const {
    if (!checkpoint_) return std::nullopt;
    return LastCheckpoint{checkpoint_->first, seconds_() - checkpoint_->second};
  }

  bool quiet_;
  std::function<double()> seconds_;
  Console console_;
  std::vector<std::unique_ptr<RecordSink>> sinks_;
  std::optional<std::pair<std::int64_t, double>> checkpoint_;  // step and when
};

}  // namespace

ReporterSettings standard_sinks(const config::Options& options) {
  const host::Terminal terminal = host::find_terminal();
  const bool wanted = options.progress == config::ShowProgress::on ||
                      (options.progress == config::ShowProgress::automatic && terminal.err);
  return {
      .out = [](std::string_view text) { write_all(STDOUT_FILENO, text); },
      .err = [](std::string_view text) { write_all(STDERR_FILENO, text); },
      .one_terminal = terminal.out && terminal.err,
      .columns = terminal.columns,
      .show_progress = wanted && !options.quiet,
      .colours = terminal.colours,
      .seconds =
          [watch = std::chrono::steady_clock::now()] {
            return std::chrono::duration<double>(std::chrono::steady_clock::now() - watch).count();
          }};
}

std::unique_ptr<Reporter> make_reporter(const config::Options& options, ReporterSettings sinks,
                                        WorkProgress* progress) {
  return std::make_unique<ActiveReporter>(options, std::move(sinks), progress);
}

std::unique_ptr<Reporter> make_silent_reporter() { return std::make_unique<SilentReporter>(); }

}  // namespace ringtrain::metrics
