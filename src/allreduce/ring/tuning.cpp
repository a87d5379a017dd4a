#include "ringtrain/allreduce/ring/tuning.hpp"

#include <algorithm>
#include <cmath>

namespace ringtrain::allreduce {
namespace {

constexpr double worth_it = 0.95;  // of the default's time
constexpr double busy = 0.95;
constexpr double long_hop_s = 1e-3;  // on shorter ones the threads of sums cost computing more

// Noise must not look like a reason.
const RingTrial& best_of(const std::vector<RingTrial>& trials) {
  const auto best = std::ranges::min_element(trials, {}, &RingTrial::seconds);
  return best->seconds < worth_it * trials.front().seconds ? *best : trials.front();
}

int enough_at_once(double alone_s, double carried_s) {
  if (carried_s <= 0) return 1;
  return static_cast<int>(
      std::clamp(std::ceil(busy * alone_s / carried_s), 1.0, double(most_sums_at_once)));
}

}  // namespace

double RingTable::carried_s(double bytes_of_sum) const {
  return bytes_a_second > 0 ? bytes_of_sum * 2 * (hosts - 1) / hosts / bytes_a_second : 0;
}

RingChoice choose_ring(const RingTable& measured, double bucket_bytes) {
  RingChoice choice{.measured = measured};
  if (measured.trials.empty()) return choice;
  const RingTrial& best = best_of(measured.trials);
  choice.plan.ring = best.tuning;
  choice.seconds = best.seconds;
  if (measured.hop_s < long_hop_s) return choice;
  const double carried_s = measured.carried_s(bucket_bytes);
  const double waiting_s = std::max(0.0, best.seconds - measured.carried_s(measured.bytes));
  choice.plan.at_once = enough_at_once(waiting_s + carried_s, carried_s);
  return choice;
}

}  // namespace ringtrain::allreduce
