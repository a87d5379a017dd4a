#include "ringtrain/base/hash.hpp"

#include <fmt/core.h>
#include <xxhash.h>

namespace ringtrain {

std::uint64_t hash_bytes(std::span<const std::byte> bytes, std::uint64_t seed) {
  return XXH64(bytes.data(), bytes.size(), seed);
}

std::string hex(std::uint64_t value) { return fmt::format("{:016x}", value); }

}  // namespace ringtrain
