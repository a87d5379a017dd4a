#include "train/stragglers.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <numeric>

namespace ringtrain {
namespace {

double busy_s(const Work& work) {
  return std::accumulate(work.seconds.begin(), work.seconds.end(), 0.0);
}

// A step of the window from `before` to `now`.
Work mean_step(const Work& before, const Work& now) {
  Work step;
  step.steps = now.steps - before.steps;
  for (std::size_t kind = 0; kind < Work::kinds.size(); ++kind)
    step.seconds[kind] =
        (now.seconds[kind] - before.seconds[kind]) / static_cast<double>(step.steps);
  return step;
}

double median(const std::vector<Work>& work, const std::function<double(const Work&)>& value) {
  std::vector<double> values;
  for (const Work& one : work) values.push_back(value(one));
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

Stragglers::Stragglers(int ranks)
    : before_(static_cast<std::size_t>(ranks)), told_(before_.size(), false) {}

std::vector<std::string> Stragglers::look(std::span<const Work> now,
                                          std::span<const std::string> hosts) {
  std::vector<Work> spent;
  for (std::size_t r = 0; r < now.size(); ++r) {
    if (now[r].steps < before_[r].steps + window_steps) return {};
    spent.push_back(mean_step(before_[r], now[r]));
  }
  before_.assign(now.begin(), now.end());
  const double median_s = median(spent, busy_s);
  std::vector<std::string> sentences;
  for (std::size_t r = 0; r < spent.size(); ++r) {
    const bool is_slow = busy_s(spent[r]) > tolerated * median_s;
    if (is_slow == told_[r]) continue;
    told_[r] = is_slow;
    sentences.push_back(fmt::format("rank {} on {} ", r, hosts[r]) +
                        (is_slow ? slow(r, spent, median_s) : "keeps up again"));
  }
  return sentences;
}

std::string Stragglers::slow(std::size_t rank, const std::vector<Work>& spent,
                             double median_s) const {
  std::size_t worst = 0;
  double excess_s = 0, usual_s = 0;
  for (std::size_t kind = 0; kind < Work::kinds.size(); ++kind) {
    const double usual = median(spent, [=](const Work& w) { return w.seconds[kind]; });
    if (spent[rank].seconds[kind] - usual <= excess_s) continue;
    worst = kind;
    usual_s = usual;
    excess_s = spent[rank].seconds[kind] - usual;
  }
  return fmt::format(
      "holds up the others: {:.1f} ms of work a step, {:.1f} times the median; most of it in {}: "
      "{:.1f} ms, where the median is {:.1f} ms",
      1e3 * busy_s(spent[rank]), busy_s(spent[rank]) / median_s, Work::kinds[worst],
      1e3 * spent[rank].seconds[worst], 1e3 * usual_s);
}

}  // namespace ringtrain
