#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace ringtrain::allreduce {

/// A value and its place among others.
struct IndexedValue {
  std::uint32_t place = 0;
  float value = 0;
};

/// Takes the `taken.size()` values that are largest in size out of `values`, which become 0 there,
/// in order of their places. Of equal ones those in front go first; NaN is larger than all. No more
/// than values.size(), which fits 32 bits.
void select_topk(std::span<float> values, std::span<IndexedValue> taken);

}  // namespace ringtrain::allreduce
