#pragma once
#include <array>
#include <cstdint>

namespace ringtrain {

/// What a random number is for: the streams of different purposes never meet.
enum class Purpose : std::uint32_t {
  initialise,
  order,
  augment,
  dropout,
  synthetic,
  shapes,
  compression,
  flip,
  mix
};

/// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11): random
/// numbers as a pure function of a key and a counter, so that no thread, rank or history can change
/// them. A generator is four words of state and can be made anew for every sample.
class Philox {
 public:
  using Block = std::array<std::uint32_t, 4>;

  /// The stream of (seed, purpose, a, b); by convention a, below 2^24, is an epoch or layer, b a
  /// sample.
  Philox(std::uint64_t seed, Purpose purpose, std::uint32_t a = 0, std::uint64_t b = 0);

  /// The four words at `position` of this stream, in any order and as often as wanted.
  Block at(std::uint32_t position) const;

  /// The next word of this stream.
  std::uint32_t next();
  /// Uniform in [0, 1) with 24 bits.
  float uniform();
  /// Uniform in [low, high).
  float uniform(float low, float high) { return low + (high - low) * uniform(); }
  /// Uniform in 0..bound-1, without bias; `bound` is positive.
  std::uint32_t below(std::uint32_t bound);
  /// Standard normal (Box-Muller).
  double normal();

 private:
  std::array<std::uint32_t, 2> key_;
  std::array<std::uint32_t, 3> counter_;  // the fourth word is the position
  std::uint32_t position_ = 0;
  std::uint32_t used_ = 4;
  Block block_{};
};

}  // namespace ringtrain
