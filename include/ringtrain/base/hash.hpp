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

/// CRC-32C (Castagnoli), by the processor's instruction where it has one.
std::uint32_t crc32c(std::span<const std::uint8_t> bytes);
/// The checksum that TFRecord files have: masked, as it covers what may hold checksums.
std::uint32_t masked_crc32c(std::span<const std::uint8_t> bytes);
/// crc32c, on any processor.
std::uint32_t crc32c_portable(std::span<const std::uint8_t> bytes);

/// `data` as a record of a TFRecord file: its length, a checksum of that, `data`, a checksum of it.
std::string tfrecord_frame(std::string_view data);

}  // namespace ringtrain
