#include "allreduce/compression/compressor.hpp"

#include <algorithm>
#include <functional>

namespace ringtrain::allreduce {

ErrorFeedback::ErrorFeedback(const Compression& how, std::span<const GradientMatrix> matrices)
    : bounds_{0} {
  for (const GradientMatrix& matrix : matrices)
    bounds_.push_back(bounds_.back() + left_over_count(how, matrix));
  kept_.resize(bounds_.back());
  next_.resize(bounds_.back());
}

std::span<float> ErrorFeedback::add_to(std::size_t matrix, const float* values) {
  const std::span<float> next = part(next_, matrix);
  std::ranges::transform(part(kept_, matrix), std::span(values, next.size()), next.begin(),
                         std::plus{});
  return next;
}

std::span<float> ErrorFeedback::part(std::vector<float>& all, std::size_t matrix) const {
  return std::span(all).subspan(bounds_[matrix], bounds_[matrix + 1] - bounds_[matrix]);
}

}  // namespace ringtrain::allreduce
