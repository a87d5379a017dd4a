#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "ringtrain/base/unique_handle.hpp"

struct XXH64_state_s;

namespace ringtrain {

/// XXH64 of some bytes: finds damage, not malice.
std::uint64_t hash_bytes(std::span<const std::byte> bytes, std::uint64_t seed = 0);
inline std::uint64_t hash_text(std::string_view text, std::uint64_t seed = 0) {
  return hash_bytes(std::as_bytes(std::span(text.data(), text.size())), seed);
}

namespace detail {
void free_hash_state(XXH64_state_s* state) noexcept;
}

/// XXH64 of bytes that come piece by piece: however they are cut, value() is hash_bytes() of all.
class Hasher {
 public:
  Hasher();
  void update(std::span<const std::byte> bytes);
  std::uint64_t value() const;

 private:
  UniqueHandle<XXH64_state_s*, detail::free_hash_state> state_;
};

/// 16 lower-case hexadecimal digits.
std::string hex(std::uint64_t value);

}  // namespace ringtrain
