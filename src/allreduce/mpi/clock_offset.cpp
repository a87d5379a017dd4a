#include "ringtrain/allreduce/mpi/clock_offset.hpp"

#include <algorithm>

namespace ringtrain {

ClockOffset offset_from(std::span<const ClockProbe> probes) {
  expects(!probes.empty(), "offset_from: at least one probe");
  const ClockProbe best = *std::ranges::min_element(
      probes, {}, [](const ClockProbe& p) { return p.answered - p.asked; });
  const double middle = (best.asked + best.answered) / 2;
  return {middle, best.read - middle, (best.answered - best.asked) / 2};
}

double by_other_clock(double moment, const ClockOffset& before, const ClockOffset& after) {
  const double apart = after.at - before.at;
  const double share = apart > 0 ? (moment - before.at) / apart : 0;
  return moment + before.offset + share * (after.offset - before.offset);
}

}  // namespace ringtrain
