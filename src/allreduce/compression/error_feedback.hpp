#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "ringtrain/allreduce/communicator/compression.hpp"

namespace ringtrain::allreduce {

/// What a host left out of the sums of its matrices: as of the last step that counts, and of the
/// step under way.
class ErrorFeedback {
 public:
  ErrorFeedback(const Compression& how, std::span<const GradientMatrix> matrices);
  /// values + what was left out of them. The caller takes out what it sends: the rest is left over.
  std::span<float> add_to(std::size_t matrix, const float* values);
  /// What add_to() gave for this matrix last.
  std::span<float> of(std::size_t matrix) { return part(next_, matrix); }
  void accept() { kept_.swap(next_); }
  /// What was left out of the sums that count, of all matrices.
  const std::vector<float>& kept() const { return kept_; }
  std::vector<float>& kept() { return kept_; }

 private:
  std::span<float> part(std::vector<float>& all, std::size_t matrix) const;

  std::vector<std::size_t> bounds_;  // of each matrix, and the end
  std::vector<float> kept_, next_;
};

}  // namespace ringtrain::allreduce
