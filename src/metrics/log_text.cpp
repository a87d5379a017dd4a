#include "ringtrain/metrics/log_text.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>

#include "ringtrain/base/units.hpp"

namespace ringtrain {
namespace {

using Time = std::chrono::system_clock::time_point;

std::string two_units(double seconds, int large, const char* large_name, int small,
                      const char* small_name) {
  const auto all = static_cast<std::int64_t>(seconds);
  return fmt::format("{} {} {} {}", all / large, large_name, all % large / small, small_name);
}

std::string percent_of_top(const EvalRecord& r) {
  return fmt::format("top-1 {:.2f} %, top-5 {:.2f} %, loss {:.4g} ({} images)", 100 * r.top1,
                     100 * r.top5, r.loss, r.examples);
}

double eta_seconds(const ProgressState& s) {
  const double done = static_cast<double>(s.step - s.first_step);
  return done > 0 ? s.elapsed_seconds / done * static_cast<double>(s.total_steps - s.step) : -1;
}

std::string clock_text(double seconds) {
  const auto all = static_cast<std::int64_t>(std::ceil(seconds));
  if (all < 3600) return fmt::format("{}:{:02}", all / 60, all % 60);
  return fmt::format("{}:{:02}:{:02}", all / 3600, all / 60 % 60, all % 60);
}

std::string drawn_bar(double done, std::size_t cells) {
  const auto full =
      static_cast<std::size_t>(std::clamp(done, 0.0, 1.0) * static_cast<double>(cells));
  return "[" + std::string(full, '#') + std::string(cells - full, '-') + "] ";
}

}  // namespace

std::string timestamp(Time now) {
  const auto micros =
      std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count();
  const std::time_t seconds = micros / 1'000'000;
  std::tm local{};
  ::localtime_r(&seconds, &local);
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02}.{:06}", local.tm_year + 1900,
                     local.tm_mon + 1, local.tm_mday, local.tm_hour, local.tm_min, local.tm_sec,
                     micros % 1'000'000);
}

std::string duration_words(double seconds) {
  if (seconds < 10) return fmt::format("{:.1f} s", seconds);
  if (seconds < 100) return fmt::format("{:.0f} s", seconds);
  if (seconds < 3600) return two_units(seconds, 60, "min", 1, "s");
  return two_units(seconds, 3600, "h", 60, "min");
}

std::string log_line(Time now, const StepRecord& r, const std::optional<LastCheckpoint>& last) {
  std::string line = fmt::format(
      "{}: step {}, loss = {:.2f} ({:.1f} examples/sec; {:.3f} sec/batch) | lr {:.4g} | wait data "
      "{:.1f} ms, comm {:.1f} ms",
      timestamp(now), r.step, r.loss, r.examples_per_second, r.seconds_per_batch, r.learning_rate,
      1e3 * r.phases[Phase::data_wait], 1e3 * r.phases[Phase::comm_exposed]);
  if (r.ranks && !r.ranks->slowest.empty()) line += " | " + r.ranks->slowest;
  if (last)
    line += fmt::format(" | checkpoint {}, {} old", last->step, duration_words(last->age_seconds));
  return line;
}

std::string log_line(Time now, const EvalRecord& r) {
  return fmt::format("{}: step {}, evaluation: {}", timestamp(now), r.step, percent_of_top(r));
}

std::string log_line(Time now, const EventRecord& r) {
  constexpr std::size_t most = 1200;  // a slow-down's cause and what to do about it
  return brief(fmt::format("{}: rank {}: {}: {}", timestamp(now), r.rank, r.what, r.text), most);
}

std::string progress_bar(const ProgressState& s, std::size_t columns) {
  const double done =
      s.total_steps > 0 ? static_cast<double>(s.step) / static_cast<double>(s.total_steps) : 0;
  const double eta = eta_seconds(s);
  std::string line =
      fmt::format("{:3} %  step {}/{}", s.total_steps > 0 ? 100 * s.step / s.total_steps : 0,
                  s.step, s.total_steps);
  const std::array parts = {eta >= 0 ? fmt::format("  ETA {}", clock_text(eta)) : std::string(),
                            fmt::format("  {:.1f} examples/s", s.examples_per_second),
                            s.loss ? fmt::format("  loss {:.2f}", *s.loss) : std::string()};
  for (const std::string& part : parts)
    if (line.size() + part.size() <= columns) line += part;
  constexpr std::size_t least = 5, most = 30, frame = 3;
  if (line.size() + least + frame <= columns)
    line = drawn_bar(done, std::min(most, columns - line.size() - frame)) + line;
  return line.substr(0, columns);
}

}  // namespace ringtrain
