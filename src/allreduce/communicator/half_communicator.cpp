#include "ringtrain/allreduce/communicator/half_communicator.hpp"

#include <algorithm>

namespace ringtrain::allreduce {

void Communicator::start_average(NarrowView) {
  throw Error("sum in 16 bits", "only GPUs do; --gradient-dtype fp32 works everywhere");
}

void Communicator::start_replaced_sum(View, const ReduceHook&) {
  throw Error("sum in parts", "only the ring between CPUs does");
}

std::vector<Range> Communicator::own_parts(std::span<const std::size_t>, int) const {
  throw Error("sum in parts", "only the ring between CPUs does");
}

HalfCommunicator::HalfCommunicator(Communicator& sums, Rounding& rounding, Element element,
                                   View values, std::size_t head)
    : sums_(sums),
      rounding_(rounding),
      head_(values.slice(0, head)),
      gradients_(values.slice(head, values.size() - head)),
      memory_(sums.memory().allocate((gradients_.size() + 1) / 2)),
      rounded_(element, reinterpret_cast<std::uint16_t*>(memory_.view().data()),
               gradients_.size()) {}

void HalfCommunicator::start_sum(View part) {
  const auto first = static_cast<std::size_t>(part.data() - head_.data());
  const std::size_t end = first + part.size(), border = std::clamp(head_.size(), first, end);
  if (border < end) start_narrow_sum({border - head_.size(), end - border});
  if (first < border) sums_.start_sum(head_.slice(first, border - first));
}

// Each rank's part is small where ranks are many. Times the ranks it is as large as one rank's
// gradients alone would be, so that averages lose no more small numbers than sums.
void HalfCommunicator::start_narrow_sum(Range gradients) {
  const NarrowView rounded = rounded_.slice(gradients.first, gradients.count);
  rounding_.round(static_cast<float>(size()), gradients_.slice(gradients), rounded);
  sums_.start_average(rounded);
}

void HalfCommunicator::finish() {
  sums_.finish();
  rounding_.widen(rounded_, gradients_);
}

}  // namespace ringtrain::allreduce
