#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "ringtrain/compute/step.hpp"

namespace ringtrain::compute {

/// Where each tensor lies in one shared arena, in bytes.
struct MemoryPlan {
  std::vector<std::size_t> offset;  ///< by TensorId; multiples of 64; of a slice, its tensor's
  std::size_t bytes = 0;            ///< of the arena
};

/// Places tensors of the given sizes so that two overlap only when no step needs both: a tensor
/// lives from the first step that touches it, or a slice of it, to the last. Greedy by size
/// (Pisarchyk and Lee 2020, "Efficient memory management for deep neural net inference"). Pure and
/// deterministic.
MemoryPlan plan_memory(const Schedule& schedule, std::span<const std::size_t> bytes);

}  // namespace ringtrain::compute
