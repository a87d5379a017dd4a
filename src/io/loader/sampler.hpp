#pragma once
#include <cstdint>

namespace ringtrain::io {

/// The endless order in which training sees `size` samples. Every epoch is a permutation of its
/// own, a function of (seed, epoch) that is computed for one position without the others: no table,
/// no state, and resuming anywhere costs nothing.
class Sampler {
 public:
  Sampler(std::uint64_t size, std::uint64_t seed);

  struct Draw {
    std::uint32_t epoch;
    std::uint64_t sample;
  };
  Draw at(std::uint64_t position) const;

 private:
  std::uint64_t shuffled(std::uint32_t epoch, std::uint64_t index) const;
  std::uint64_t permuted(std::uint32_t epoch, std::uint64_t index) const;

  std::uint64_t size_, seed_, rows_, columns_;
};

}  // namespace ringtrain::io
