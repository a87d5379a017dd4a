#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "ringtrain/base/memory/view.hpp"

namespace ringtrain::allreduce {

/// y += x, with the widest vectors this CPU has; the bits do not depend on them. `x` is as long as
/// `y`.
void add(std::span<float> y, std::span<const float> x);

/// The same elements in the memory of each rank of a host, at equal distances.
struct Replicas {
  float* first = nullptr;
  std::ptrdiff_t stride = 0;  ///< elements from one rank's to the next one's
  int count = 1;

  float* of(int rank) const { return first + rank * stride; }
};

/// Sums `slice` over the replicas, beginning with that of rank `start` and wrapping around, and
/// writes the result to the replicas [to.first, to.end()).
void sum_replicas(const Replicas& replicas, Range slice, int start, Range to);

/// The same two, as compiled for one instruction set.
struct Kernels {
  const char* name;
  void (*add)(float* y, const float* x, std::size_t count);
  void (*sum_replicas)(const Replicas& replicas, Range slice, int start, Range to);
};

/// Those that this CPU can run, the best first: all give the same bits.
std::vector<Kernels> usable_kernels();

}  // namespace ringtrain::allreduce
