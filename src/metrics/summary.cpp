#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "ringtrain/metrics/log_text.hpp"

namespace ringtrain {
namespace {

constexpr double visible = 0.0005;  // shares below are 0.0 %

/// The shares of one phase on each rank.
std::vector<double> shares_of(std::size_t phase, const std::vector<PhaseSeconds>& ranks) {
  std::vector<double> shares;
  for (const PhaseSeconds& rank : ranks) {
    const double total = rank.total();
    shares.push_back(total > 0 ? rank.seconds[phase] / total : 0);
  }
  return shares;
}

std::string phase_line(std::size_t phase, const std::vector<PhaseSeconds>& ranks) {
  const std::vector<double> shares = shares_of(phase, ranks);
  const auto [least, most] = std::ranges::minmax(shares);
  if (most < visible) return "";
  const double mean =
      std::accumulate(shares.begin(), shares.end(), 0.0) / static_cast<double>(shares.size());
  std::string line = fmt::format("  {:<18} {:5.1f} %", phase_words[phase], 100 * mean);
  if (ranks.size() > 1) line += fmt::format("   {:5.1f} .. {:5.1f} %", 100 * least, 100 * most);
  return line + "\n";
}

std::string where_time_went(const std::vector<PhaseSeconds>& ranks) {
  if (ranks.empty()) return "";
  std::string table = fmt::format("  {:<18} {:>7}", "time of a rank", "mean");
  if (ranks.size() > 1) table += fmt::format("   {:>14}", "least .. most");
  table += "\n";
  for (std::size_t phase = 0; phase < phase_names.size(); ++phase)
    table += phase_line(phase, ranks);
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

}  // namespace ringtrain
