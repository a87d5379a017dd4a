#include "ringtrain/metrics/reporter/reporter.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "metrics/sinks/record_sink.hpp"
#include "ringtrain/base/file.hpp"
#include "ringtrain/host/launcher.hpp"

namespace ringtrain::metrics {
namespace {

/// Lines above a progress bar. Where both are seen on one terminal they go through one stream:
/// mpirun forwards standard output and error in no order.
class Console {
 public:
  explicit Console(ReporterSettings sinks) : sinks_(std::move(sinks)) {}

  /// A line, or several.
  void line(std::string_view text);
  /// The same on standard error.
  void warning(std::string_view text);
  /// Redraws the bar unless it was drawn less than a tenth of a second ago.
  void progress(const ProgressState& state);
  /// Leaves the bar as it is last, on a line of its own.
  void close();

 private:
  /// Lines must keep their order to a bar on the same terminal.
  bool one_stream() const { return sinks_.show_progress && sinks_.one_terminal; }
  void above_bar(std::string_view lines);
  std::string drawn() const;

  ReporterSettings sinks_;
  std::string bar_;  // as it stands on the terminal; empty: none
  ProgressState state_;
  double drawn_at_ = 0;
};

constexpr double between_draws_s = 0.1;
constexpr std::string_view clear_line = "\r\x1b[K", yellow = "\x1b[33m", plain = "\x1b[0m";

void Console::line(std::string_view text) {
  if (one_stream())
    above_bar(text);
  else
    sinks_.out(std::string(text) + "\n");
}

void Console::warning(std::string_view text) {
  above_bar(sinks_.colours ? fmt::format("{}{}{}", yellow, text, plain) : std::string(text));
}

void Console::above_bar(std::string_view lines) {
  const std::string_view clear = bar_.empty() ? "" : clear_line;
  if (!bar_.empty()) bar_ = drawn();
  sinks_.err(std::string(clear) + std::string(lines) + "\n" + bar_);
}

// One column less than there are: the last one makes some terminals wrap.
std::string Console::drawn() const { return progress_bar(state_, sinks_.columns - 1); }

void Console::progress(const ProgressState& state) {
  if (!sinks_.show_progress) return;
  state_ = state;
  const double now = sinks_.seconds();
  if (!bar_.empty() && now - drawn_at_ < between_draws_s) return;
  drawn_at_ = now;
  bar_ = drawn();
  sinks_.err(std::string(clear_line) + bar_);
}

void Console::close() {
  if (bar_.empty()) return;
  sinks_.err(std::string(clear_line) + drawn() + "\n");
  bar_.clear();
}

std::chrono::system_clock::time_point now() { return std::chrono::system_clock::now(); }

class SilentReporter final : public Reporter {
 public:
  void note(std::string_view) override {}
  void progress(const ProgressState&) override {}
  void write(const Record& record) override {
    if (const auto* const event = std::get_if<EventRecord>(&record))
      write_all(STDERR_FILENO, log_line(now(), *event) + "\n");
  }
};

class ActiveReporter final : public Reporter {
 public:
  ActiveReporter(const config::Options& options, ReporterSettings sinks, WorkProgress* progress)
      : quiet_(options.quiet), seconds_(sinks.seconds), console_(std::move(sinks)) {
    const auto open = [&](const std::string& path) {
      if (!path.empty()) at(progress, Work::open, path);
      return !path.empty();
    };
    if (open(options.metrics)) sinks_.push_back(make_json_lines(options.metrics, warn("metrics")));
    if (open(options.tensorboard))
      sinks_.push_back(make_tensorboard(options.tensorboard, warn("tensorboard")));
    if (open(options.report)) sinks_.push_back(make_report(options.report, warn("report")));
  }

  void note(std::string_view line) override {
    if (!quiet_) console_.line(line);
  }
  void progress(const ProgressState& state) override { console_.progress(state); }
  void write(const Record& record) override {
    std::visit([this](const auto& r) { show(r); }, record);
    for (const auto& sink : sinks_) sink->write(record);
  }

 private:
  void show(const StepRecord& record) { note(log_line(now(), record, last_checkpoint())); }
  void show(const EvalRecord& record) { note(log_line(now(), record)); }
  void show(const CheckpointRecord& record) { checkpoint_ = {record.step, seconds_()}; }
  void show(const EventRecord& record) { console_.warning(log_line(now(), record)); }
  void show(const EndRecord&) { console_.close(); }
  template <class Other>
  void show(const Other&) {}

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
  const int out = options.output_is_piped() ? STDERR_FILENO : STDOUT_FILENO;
  return {
      .out = [out](std::string_view text) { write_all(out, text); },
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
