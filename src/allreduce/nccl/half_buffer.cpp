#include "allreduce/nccl/half_buffer.hpp"

namespace ringtrain::allreduce {

HalfBuffer::HalfBuffer(Rounding& rounding, Memory& memory, std::size_t count)
    : rounding_(rounding), count_(count), memory_(memory.allocate((count + 1) / 2)), free_(count) {}

// From the end, as gradients become final: what lies together there lies together here, and is
// widened by one call.
NarrowView HalfBuffer::round(float factor, View values, Element element) {
  expects(values.size() <= free_, "HalfBuffer: room for all numbers until widen()");
  free_ -= values.size();
  auto* const all = reinterpret_cast<std::uint16_t*>(memory_.view().data());
  const NarrowView halves(element, all + free_, values.size());
  rounding_.round(factor, values, halves);
  if (!rounded_.empty() && rounded_.back().values.data() == values.data() + values.size() &&
      rounded_.back().halves.element() == element) {
    Rounded& behind = rounded_.back();
    const std::size_t size = values.size() + behind.values.size();
    behind = {{values.data(), size}, {element, halves.data(), size}};
  } else {
    rounded_.push_back({values, halves});
  }
  return halves;
}

void HalfBuffer::widen() {
  for (const Rounded& each : rounded_) rounding_.widen(each.halves, each.values);
  rounded_.clear();
  free_ = count_;
}

}  // namespace ringtrain::allreduce
