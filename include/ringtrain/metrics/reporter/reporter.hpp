#pragma once
// Room `metrics/reporter`: what the user sees of a run. Rank 0's Reporter shows records as lines on
// the terminal, above a bar of progress, and hands each to all files that options name; the other
// ranks' shows events alone.
//
// Threads: main.
// Collective: nothing.
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "ringtrain/base/work_progress.hpp"
#include "ringtrain/config/options.hpp"
#include "ringtrain/metrics/log_text.hpp"
#include "ringtrain/metrics/records.hpp"

namespace ringtrain::metrics {

/// Tells the user about a run, on standard output and error and in the files of --metrics,
/// --tensorboard and --report. Rank 0 has the one that speaks, the others one that is silent, so
/// that callers need not ask who they are.
class Reporter {
 public:
  virtual ~Reporter() = default;
  /// A line for the user, such as what was chosen at the start.
  virtual void note(std::string_view line) = 0;
  /// To be called at every step; draws at most ten times a second.
  virtual void progress(const ProgressState& state) = 0;
  /// Steps and evaluations are lines for the user, too. Events are shown on standard error, with
  /// --quiet, too. An EndRecord ends the bar of progress.
  virtual void write(const Record& record) = 0;
};

/// Where the speaking output writes, and how it knows the time; tests give their own.
struct ReporterSettings {
  std::function<void(std::string_view)> out, err;
  bool one_terminal = false;  ///< out and err are seen on the same terminal
  std::size_t columns = 80;
  bool show_progress = false;
  bool colours = false;             ///< warnings stand out on err
  std::function<double()> seconds;  ///< any steady clock
};

/// Standard output and error, as `options` and the terminal have it.
ReporterSettings standard_sinks(const config::Options& options);

/// For rank 0. Throws Error(Exit::storage) when a file that options name cannot be opened.
/// `progress` hears which one is being opened; null: nobody.
std::unique_ptr<Reporter> make_reporter(const config::Options& options, ReporterSettings sinks,
                                        WorkProgress* progress = nullptr);
/// For the other ranks: only events are shown.
std::unique_ptr<Reporter> make_silent_reporter();

}  // namespace ringtrain::metrics
