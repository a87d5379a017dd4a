#pragma once
#include <cstdint>
#include <vector>

namespace ringtrain::io {

/// Random permutations of 0..size-1, each computed for one index without the others: no table.
class Permutations {
 public:
  explicit Permutations(std::uint64_t size);

  /// Which permutation.
  struct Key {
    std::uint64_t seed;
    std::uint32_t stream;    ///< below 2^24
    std::uint64_t pass = 0;  ///< of the stream
  };
  std::uint64_t at(const Key& key, std::uint64_t index) const;

 private:
  std::uint64_t permuted(const Key& key, std::uint64_t index) const;

  std::uint64_t size_, rows_, columns_;
};

/// The endless order in which training sees samples. It is a function of (seed, position) that is
/// computed for one position without the others: no state, and resuming anywhere costs nothing.
class Sampler {
 public:
  /// Every epoch is a permutation of its own of `size` samples. With repeats, each sample of its
  /// beginning comes so often, not twice among two neighbours but at an epoch's end (see
  /// Augmentation::repeats).
  Sampler(std::uint64_t size, std::uint64_t seed, int repeats = 1);
  /// Every epoch has as many draws as there are `labels`, one a sample. Each class that has samples
  /// gets equally many of them, or one more. Its samples come in passes, each a permutation of its
  /// own, and passes go on from epoch to epoch: at the end of any epoch all samples of a class have
  /// come equally often, or once more.
  static Sampler balanced(const std::vector<int>& labels, std::uint64_t seed);

  struct Draw {
    std::uint32_t epoch;
    std::uint64_t sample;
    std::uint32_t repeat = 0;  ///< balanced or repeated: how often the sample came before
  };
  Draw at(std::uint64_t position) const;

 private:
  struct Class {
    std::vector<std::uint64_t> samples;
    Permutations passes;
  };
  Draw of_class(std::uint32_t epoch, std::uint64_t place) const;
  Draw repeated(std::uint32_t epoch, std::uint64_t place) const;

  std::uint64_t size_, seed_, repeats_;
  Permutations epochs_;
  std::vector<Class> classes_;  // none: not balanced
};

}  // namespace ringtrain::io
