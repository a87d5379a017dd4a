#pragma once
#include <random>
#include <span>
#include <string>

namespace ringtrain::test {

/// A way in which disks, networks and hands damage files. `apply` gets a file of a header's length
/// or more and another checkpoint, and returns the damaged one.
struct Damage {
  const char* name;
  std::string (*apply)(std::string file, const std::string& other, std::mt19937_64& random);
};

/// All ways.
std::span<const Damage> all_damages();

/// A number from 0 to `bound` - 1.
inline std::size_t below(std::mt19937_64& random, std::size_t bound) { return random() % bound; }

}  // namespace ringtrain::test
