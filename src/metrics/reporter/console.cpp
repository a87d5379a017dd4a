#include "metrics/reporter/console.hpp"

#include <fmt/core.h>

namespace ringtrain::metrics {
namespace {

constexpr double between_draws_s = 0.1;
constexpr std::string_view clear_line = "\r\x1b[K", yellow = "\x1b[33m", plain = "\x1b[0m";

}  // namespace

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

}  // namespace ringtrain::metrics
