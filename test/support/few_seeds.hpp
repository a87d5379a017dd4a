#pragma once
#include "support/host_gpu/host_gpu.hpp"

namespace ringtrain {

inline constexpr int few_seeds = 20;

/// Runs `work` for a few seeds; how many of the results it returned were not `expected`.
template <class F>
int wrong_results(float expected, F work) {
  int wrong = 0;
  for (int seed = 0; seed < few_seeds; ++seed) {
    host_gpu::set_seed(seed);
    wrong += work() != expected;
  }
  return wrong;
}

}  // namespace ringtrain
