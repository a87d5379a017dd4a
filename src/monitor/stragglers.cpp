#include "monitor/stragglers.hpp"

#include <fmt/core.h>

namespace ringtrain {
namespace {

std::string slow(std::size_t rank, std::span<const PhaseSeconds> steps, double median_s) {
  const double own_s = own_work_s(steps[rank]);
  const Lag worst = worst_lag(rank, steps);
  return fmt::format(
      "holds up the others: {:.1f} ms of work a step, {:.1f} times the median; most of it in {}: "
      "{:.1f} ms, where the median is {:.1f} ms",
      1e3 * own_s, own_s / median_s, words_of(worst.phase), 1e3 * worst.seconds,
      1e3 * worst.median);
}

}  // namespace

Stragglers::Stragglers(int ranks)
    : before_(static_cast<std::size_t>(ranks)), told_(before_.size(), false) {}

std::vector<std::string> Stragglers::look(std::span<const Spent> now,
                                          std::span<const std::string> hosts) {
  std::vector<PhaseSeconds> steps;
  std::vector<double> own_s;
  for (std::size_t r = 0; r < now.size(); ++r) {
    if (now[r].steps < before_[r].steps + window_steps) return {};
    steps.push_back(mean_step(before_[r], now[r]));
    own_s.push_back(own_work_s(steps.back()));
  }
  before_.assign(now.begin(), now.end());
  const double median_s = lower_median(own_s);
  std::vector<std::string> sentences;
  for (std::size_t r = 0; r < steps.size(); ++r) {
    const bool is_slow = own_s[r] > tolerated * median_s;
    if (is_slow == told_[r]) continue;
    told_[r] = is_slow;
    sentences.push_back(fmt::format("rank {} on {} ", r, hosts[r]) +
                        (is_slow ? slow(r, steps, median_s) : "keeps up again"));
  }
  return sentences;
}

}  // namespace ringtrain
