#pragma once
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace ringtrain::test {

/// A checkpoint that something or somebody changed.
struct Mutant {
  std::string kind;
  std::string bytes;
  std::uint64_t length = 0;  ///< of the file: what is beyond `bytes` is a hole
  bool mended = false;       ///< whether hashes were mended, so that it need not be refused
};

/// An endless row of changed checkpoints; equal seeds give equal rows.
class Mutants {
 public:
  /// `originals`: files of two bytes or more.
  Mutants(std::vector<std::string> originals, std::uint64_t seed);

  /// Half of them damaged as disks, networks and hands do it, and so different from all originals;
  /// half of them by someone who mends the hashes.
  Mutant next();

 private:
  std::vector<std::string> originals_;
  std::mt19937_64 random_;
};

/// One change of the index text by someone who knows the format; for fuzzers, too.
std::string lie(const std::string& index, std::mt19937_64& random);

}  // namespace ringtrain::test
