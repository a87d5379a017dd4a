#include "ringtrain/allreduce/communicator/wire_format.hpp"

#include <algorithm>

namespace ringtrain::allreduce {

void RoundingCommunicator::start_sum(View part) {
  const auto head = static_cast<std::size_t>(std::clamp<std::ptrdiff_t>(
      gradients_ - part.data(), 0, static_cast<std::ptrdiff_t>(part.size())));
  if (head < part.size()) sums_.start_rounded_sum(part.slice(head, part.size() - head), element_);
  if (head > 0) sums_.start_sum(part.slice(0, head));
}

void CompressingCommunicator::start_sum(View part) {
  const auto head = static_cast<std::size_t>(std::clamp<std::ptrdiff_t>(
      gradients_ - part.data(), 0, static_cast<std::ptrdiff_t>(part.size())));
  if (head < part.size()) {
    const View gradients = part.slice(head, part.size() - head);
    sums_.start_compressed_sum(gradients, static_cast<std::size_t>(gradients.data() - gradients_));
  }
  if (head > 0) sums_.start_sum(part.slice(0, head));
}

}  // namespace ringtrain::allreduce
