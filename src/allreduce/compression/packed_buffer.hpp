#pragma once
#include <cstddef>
#include <span>
#include <vector>

namespace ringtrain::allreduce {

/// What travels of several pieces in one sum, in the order in which it was added.
class PackedBuffer {
 public:
  void clear() {
    numbers_.clear();
    places_.clear();
  }
  /// Room for the next piece's numbers. What was given before may be elsewhere afterwards.
  std::span<float> add(std::size_t count) {
    places_.push_back(numbers_.size());
    numbers_.resize(numbers_.size() + count);
    return std::span(numbers_).last(count);
  }
  /// The first number of a piece.
  float* of(std::size_t piece) { return numbers_.data() + places_[piece]; }
  std::span<float> numbers() { return numbers_; }

 private:
  std::vector<float> numbers_;
  std::vector<std::size_t> places_;
};

}  // namespace ringtrain::allreduce
