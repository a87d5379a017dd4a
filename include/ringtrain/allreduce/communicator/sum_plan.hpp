#pragma once
#include <cstddef>

namespace ringtrain::allreduce {

/// How a ring cuts what it sends. Changes speed, never the result.
struct RingTuning {
  std::size_t largest_segment = 31 * 256;  ///< elements of a message
  std::size_t smallest_segment = 8 * 256;  ///< unless the part is smaller
  std::size_t window = 32;                 ///< messages under way to a rank, at most
  friend bool operator==(const RingTuning&, const RingTuning&) = default;
};

/// How the sums of a step run between hosts. Changes speed, never the result.
struct SumPlan {
  RingTuning ring = {};  ///< the messages of each sum
  int at_once = 1;       ///< sums in flight at a time
  bool late = false;     ///< they start after backward, instead of each when its bucket is final
  friend bool operator==(const SumPlan&, const SumPlan&) = default;
};

}  // namespace ringtrain::allreduce
