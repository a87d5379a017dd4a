#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace ringtrain {

/// XXH64 of some bytes: finds damage, not malice.
std::uint64_t hash_bytes(std::span<const std::byte> bytes, std::uint64_t seed = 0);
inline std::uint64_t hash_text(std::string_view text, std::uint64_t seed = 0) {
  return hash_bytes(std::as_bytes(std::span(text.data(), text.size())), seed);
}
/// 16 lower-case hexadecimal digits.
std::string hex(std::uint64_t value);

}  // namespace ringtrain
