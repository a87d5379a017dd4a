#include "unit/io/checkpoint/checkpoint_damage.hpp"

#include <algorithm>
#include <array>

#include "unit/io/checkpoint/checkpoint_bytes.hpp"

namespace ringtrain::test {
namespace {

using Random = std::mt19937_64;

std::string flip_bits(std::string file, const std::string&, Random& random) {
  for (std::size_t flips = 1 + below(random, 3); flips > 0; --flips)
    file[below(random, file.size())] ^= static_cast<char>(1 << below(random, 8));
  return file;
}

std::string set_bytes(std::string file, const std::string&, Random& random) {
  const std::size_t at = below(random, file.size()), count = 1 + below(random, 16);
  for (std::size_t i = at; i < std::min(file.size(), at + count); ++i)
    file[i] = static_cast<char>(random());
  return file;
}

std::string truncate(std::string file, const std::string&, Random& random) {
  file.resize(below(random, file.size()));
  return file;
}

std::string append(std::string file, const std::string& other, Random& random) {
  return file.append(other, 0, 1 + below(random, other.size()));
}

std::string insert(std::string file, const std::string& other, Random& random) {
  const std::size_t count = 1 + below(random, 64);
  return file.insert(below(random, file.size()), other.substr(below(random, other.size()), count));
}

std::string erase(std::string file, const std::string&, Random& random) {
  return file.erase(below(random, file.size()), 1 + below(random, 64));
}

std::string swap_ranges(std::string file, const std::string&, Random& random) {
  const std::size_t count = 1 + below(random, file.size() / 4);
  const std::size_t a = below(random, file.size() - count), b = below(random, file.size() - count);
  const std::string first = file.substr(a, count);
  file.replace(a, count, file.substr(b, count));
  return file.replace(b, count, first);
}

// A sector that was never written.
std::string zero_sector(std::string file, const std::string&, Random& random) {
  const std::size_t sector = random() % 2 == 0 ? 512 : 4096;
  const std::size_t at = below(random, file.size()) / sector * sector;
  for (std::size_t i = at; i < std::min(file.size(), at + sector); ++i) file[i] = '\0';
  return file;
}

// A sector, or all from one on, of another checkpoint: a write that was lost, or a file restored in
// parts.
std::string splice(std::string file, const std::string& other, Random& random) {
  const std::size_t sector = random() % 2 == 0 ? 512 : 4096;
  const std::size_t at = below(random, file.size()) / sector * sector;
  const std::size_t count = random() % 2 == 0 ? sector : file.size();
  return file.replace(at, count, other.substr(std::min(at, other.size()), count));
}

// Two good halves: the user block is one's, the rest the other's.
std::string swap_heads(std::string file, const std::string& other, Random&) {
  const std::size_t block =
      std::min<std::size_t>(get<std::uint32_t>(file, at_user_block), file.size());
  return file.replace(0, block, other.substr(0, block));
}

constexpr std::array<Damage, 10> damages{{{"flipped bits", flip_bits},
                                          {"bytes set", set_bytes},
                                          {"truncated", truncate},
                                          {"appended", append},
                                          {"inserted", insert},
                                          {"erased", erase},
                                          {"ranges swapped", swap_ranges},
                                          {"sector of zeros", zero_sector},
                                          {"spliced", splice},
                                          {"heads swapped", swap_heads}}};

}  // namespace

std::span<const Damage> all_damages() { return damages; }

}  // namespace ringtrain::test
