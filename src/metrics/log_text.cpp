#include "ringtrain/metrics/log_text.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <numeric>

#include "ringtrain/base/text.hpp"

namespace ringtrain::metrics {

namespace {

using Time = std::chrono::system_clock::time_point;

std::string two_units(double seconds, int large, const char* large_name, int small,
                      const char* small_name) {
  const auto all = static_cast<std::int64_t>(seconds);
  return fmt::format("{} {} {} {}", all / large, large_name, all % large / small, small_name);
}

std::string in_thousands(long long number) {
  if (number < 1000) return fmt::format("{}", number);
  return fmt::format("{},{:03}", in_thousands(number / 1000), number % 1000);
}

std::string percent_of_top(const EvalRecord& r) {
  return fmt::format("top-1 {:.2f} %, top-5 {:.2f} %, loss {:.4g} ({} images)", 100 * r.top1,
                     100 * r.top5, r.loss, r.examples);
}

std::string value_text(const BestEvaluation& best) {
  return best.metric == "loss"
             ? fmt::format("loss {:.4g}", best.value)
             : fmt::format("{} {:.2f} %", best.metric == "top1" ? "top-1" : "top-5",
                           100 * best.value);
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

std::string share_words(double share, double examples_per_second) {
  return fmt::format("{:.0f} % of {}", 100 * share,
                     examples_per_second < 10 ? fmt::format("{:.2f}", examples_per_second)
                                              : in_thousands(std::llround(examples_per_second)));
}

std::string log_line(Time now, const StepRecord& r, const std::optional<LastCheckpoint>& last) {
  std::string line = fmt::format(
      "{}: step {}, loss = {:.2f} ({:.1f} examples/sec; {:.3f} sec/batch) | lr {:.4g} | wait data "
      "{:.1f} ms, comm {:.1f} ms",
      timestamp(now), r.step, r.loss, r.examples_per_second, r.seconds_per_batch, r.learning_rate,
      1e3 * r.phases[Phase::data_wait], 1e3 * r.phases[Phase::communication]);
  if (r.epochs > 0)
    line += fmt::format(" | epoch {:.2f} of {:.4g}{}", r.epoch, r.epochs,
                        r.seconds_left > 0 ? ", " + duration_words(r.seconds_left) + " left" : "");
  if (r.l2 > 0) line += fmt::format(" | cross-entropy {:.2f}, L2 {:.2f}", r.loss - r.l2, r.l2);
  if (r.ranks && !r.ranks->slowest_text.empty()) line += " | " + r.ranks->slowest_text;
  if (last)
    line += fmt::format(" | checkpoint {}, {} old", last->step, duration_words(last->age_seconds));
  if (r.speed && r.speed->slow) line += " | " + share_words(r.speed->share, r.speed->reference);
  return line;
}

std::string log_line(Time now, const EvalRecord& r) {
  std::string line =
      fmt::format("{}: step {}, evaluation: {}", timestamp(now), r.step, percent_of_top(r));
  if (r.best && r.best->step != r.step)
    line += fmt::format(" | best {} at step {}", value_text(*r.best), r.best->step);
  return line;
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
  const bool slow = s.speed && s.speed->slow;
  const std::array parts = {eta >= 0 ? fmt::format("  ETA {}", clock_text(eta)) : std::string(),
                            fmt::format("  {:.1f} examples/s", s.examples_per_second),
                            slow ? "  " + share_words(s.speed->share, s.speed->reference) : "",
                            s.loss ? fmt::format("  loss {:.2f}", *s.loss) : std::string()};
  for (const std::string& part : parts)
    if (line.size() + part.size() <= columns) line += part;
  constexpr std::size_t least = 5, most = 30, frame = 3;
  if (line.size() + least + frame <= columns)
    line = drawn_bar(done, std::min(most, columns - line.size() - frame)) + line;
  return line.substr(0, columns);
}

namespace {

constexpr double visible = 0.0005;  // shares below are 0.0 %
constexpr double limiting = 0.1;    // share of a rank's time in which it waits for data

/// The shares of one phase on each rank.
std::vector<double> shares_of(Phase phase, const std::vector<PhaseSeconds>& ranks) {
  std::vector<double> shares;
  for (const PhaseSeconds& rank : ranks) {
    const double total = rank.total();
    shares.push_back(total > 0 ? rank[phase] / total : 0);
  }
  return shares;
}

std::string phase_line(Phase phase, const std::vector<PhaseSeconds>& ranks) {
  const std::vector<double> shares = shares_of(phase, ranks);
  const auto [least, most] = std::ranges::minmax(shares);
  if (most < visible) return "";
  const double mean =
      std::accumulate(shares.begin(), shares.end(), 0.0) / static_cast<double>(shares.size());
  std::string line = fmt::format("  {:<18} {:5.1f} %", phase_names(phase).table, 100 * mean);
  if (ranks.size() > 1) line += fmt::format("   {:5.1f} .. {:5.1f} %", 100 * least, 100 * most);
  return line + "\n";
}

std::string where_time_went(const std::vector<PhaseSeconds>& ranks) {
  if (ranks.empty()) return "";
  std::string table = fmt::format("  {:<18} {:>7}", "time of a rank", "mean");
  if (ranks.size() > 1) table += fmt::format("   {:>14}", "least .. most");
  table += "\n";
  for (const Phase phase : ledger_phases) table += phase_line(phase, ranks);
  if (std::ranges::max(shares_of(Phase::data_wait, ranks)) >= limiting)
    table +=
        fmt::format("  {:<18} the loader: raise --data-threads, or use records:\n", "limited by");
  return table;
}

}  // namespace

std::string summary_table(const Summary& s) {
  std::string text = fmt::format(
      "trained {} steps, {} images in {} on {} rank{}; now at epoch {:.2f}\n", s.steps, s.examples,
      duration_words(s.seconds), s.ranks.size(), s.ranks.size() == 1 ? "" : "s", s.epochs);
  text += fmt::format("  {:<18} {:.1f} +- {:.1f} examples/s\n", "throughput", s.throughput.median,
                      s.throughput.deviation);
  if (s.efficiency)
    text += fmt::format("  {:<18} {:.1f} % of {} times one rank alone\n", "efficiency",
                        100 * *s.efficiency, s.ranks.size());
  if (s.steps_s)
    text += fmt::format("  {:<18} {:.1f} ms expected, was {:.1f} ms\n", "step",
                        1e3 * s.steps_s->first, 1e3 * s.steps_s->second);
  if (s.sums)
    text += fmt::format(
        "  {:<18} {:.0f} MB/s of bus bandwidth with waits for slower ranks, {:.1f} % of the time "
        "exposed\n",
        "sums", 1e-6 * s.sums->bus_bandwidth, 100 * s.sums->exposed_share);
  if (s.accuracy)
    text += fmt::format("  {:<18} top-1 {:.2f} %, top-5 {:.2f} % of {} images\n", "accuracy",
                        100 * s.accuracy->top1, 100 * s.accuracy->top5, s.accuracy->examples);
  if (s.accuracy && s.accuracy->best && s.accuracy->best->step != s.accuracy->step)
    text += fmt::format("  {:<18} {} at step {}\n", "best evaluation",
                        value_text(*s.accuracy->best), s.accuracy->best->step);
  if (s.checkpoint)
    text += fmt::format("  {:<18} step {}, {} old: {}\n", "checkpoint", s.checkpoint->step,
                        duration_words(s.checkpoint->age_seconds), s.checkpoint_file);
  if (s.saved + s.failed + s.skipped > 0)
    text += fmt::format("  {:<18} {} saved, {} failed, {} skipped\n", "checkpoints", s.saved,
                        s.failed, s.skipped);
  text += where_time_went(s.ranks);
  text.pop_back();
  return text;
}

}  // namespace ringtrain::metrics
