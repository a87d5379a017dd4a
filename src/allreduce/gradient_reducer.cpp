#include "ringtrain/allreduce/gradient_reducer.hpp"

#include <algorithm>
#include <chrono>

namespace ringtrain {

GradientReducer::GradientReducer(Communicator& communicator, View gradients,
                                 std::size_t bucket_bytes)
    : communicator_(communicator),
      gradients_(gradients),
      bucket_(std::max<std::size_t>(1, bucket_bytes / sizeof(float))),
      started_(gradients.size()) {}

void GradientReducer::final_from(std::size_t first) {
  expects(first <= started_, "GradientReducer: what was final stays final");
  if (started_ - first >= bucket_) start_sum_from(first);
}

void GradientReducer::finish() {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  start_sum_from(0);
  communicator_.finish();
  started_ = gradients_.size();
  exposed_seconds_ += std::chrono::duration<double>(Clock::now() - begin).count();
}

void GradientReducer::start_sum_from(std::size_t first) {
  if (first == started_) return;
  communicator_.start_sum(gradients_.slice(first, started_ - first));
  started_ = first;
}

}  // namespace ringtrain
