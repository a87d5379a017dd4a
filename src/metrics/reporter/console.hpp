#pragma once
#include <string>
#include <string_view>

#include "ringtrain/metrics/reporter/reporter.hpp"

namespace ringtrain::metrics {

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

}  // namespace ringtrain::metrics
