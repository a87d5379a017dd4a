#include "ringtrain/metrics/scaling/ring_text.hpp"

#include <fmt/core.h>

#include "ringtrain/config/option_values.hpp"

namespace ringtrain::metrics {
namespace {

std::string blocks_text(const allreduce::RingTuning& tuning) {
  const auto kib = [](std::size_t floats) { return floats * sizeof(float) / 1024; };
  if (tuning.smallest_segment == tuning.largest_segment)
    return fmt::format("{}", kib(tuning.largest_segment));
  return fmt::format("{} to {}", kib(tuning.smallest_segment), kib(tuning.largest_segment));
}

std::string text_of(const allreduce::SumPlan& plan) {
  return fmt::format("blocks of {} KiB, {} sum{} at once{}", blocks_text(plan.ring), plan.at_once,
                     plan.at_once == 1 ? "" : "s", plan.late ? ", after backward" : "");
}

std::string table(const allreduce::RingChoice& choice) {
  const allreduce::RingTable& m = choice.measured;
  std::string text = fmt::format("  sums of {:.0f} KiB over {} hosts\n  {:>12} {:>10} {:>10}",
                                 m.bytes / 1024, m.hosts, "blocks, KiB", "ms", "MB/s");
  for (const allreduce::RingTrial& trial : m.trials)
    text += fmt::format("\n  {:>12} {:>10.2f} {:>10.1f}", blocks_text(trial.tuning),
                        1e3 * trial.seconds, 1e-6 * m.bytes / trial.seconds);
  return text;
}

}  // namespace

std::vector<std::string> ring_lines(const allreduce::RingChoice& choice, const config::Tune& tune,
                                    bool details) {
  if (!tune.measures())
    return {fmt::format("links: nothing is measured, as --tuning {} says: {}",
                        config::tune_value().write(tune), text_of(choice.plan))};
  const allreduce::RingTable& m = choice.measured;
  std::vector<std::string> lines{fmt::format(
      "links: {:.0f} MB/s from host to host, {:.2f} ms a hop; a sum of {:.0f} KiB over {} hosts "
      "takes {:.2f} ms: {}",
      1e-6 * m.bytes_a_second, 1e3 * m.hop_s, m.bytes / 1024, m.hosts, 1e3 * choice.seconds,
      text_of(choice.plan))};
  if (details) lines.push_back(table(choice));
  return lines;
}

}  // namespace ringtrain::metrics
