#include "ringtrain/base/hash.hpp"

#include <fmt/core.h>
#include <xxhash.h>

#include <array>
#include <cstring>
#include <new>
#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace ringtrain {

std::uint64_t hash_bytes(std::span<const std::byte> bytes, std::uint64_t seed) {
  return XXH64(bytes.data(), bytes.size(), seed);
}

void detail::free_hash_state(XXH64_state_s* state) noexcept { XXH64_freeState(state); }

Hasher::Hasher() : state_(XXH64_createState()) {
  if (state_.get() == nullptr) throw std::bad_alloc();
  XXH64_reset(state_.get(), 0);
}

void Hasher::update(std::span<const std::byte> bytes) {
  XXH64_update(state_.get(), bytes.data(), bytes.size());
}

std::uint64_t Hasher::value() const { return XXH64_digest(state_.get()); }

std::string hex(std::uint64_t value) { return fmt::format("{:016x}", value); }

namespace {

// What each value of a byte adds, for the reflected polynomial.
constexpr auto table = [] {
  std::array<std::uint32_t, 256> rest{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    rest[byte] = byte;
    for (int bit = 0; bit < 8; ++bit)
      rest[byte] = (rest[byte] >> 1) ^ ((rest[byte] & 1) * 0x82F63B78u);
  }
  return rest;
}();

#if defined(__x86_64__)
[[gnu::target("sse4.2")]] std::uint32_t crc32c_sse42(std::span<const std::uint8_t> bytes) {
  std::uint64_t crc = 0xFFFFFFFFu, word = 0;
  for (; bytes.size() >= sizeof(word); bytes = bytes.subspan(sizeof(word))) {
    std::memcpy(&word, bytes.data(), sizeof(word));
    crc = _mm_crc32_u64(crc, word);
  }
  auto rest = static_cast<std::uint32_t>(crc);
  for (const std::uint8_t byte : bytes) rest = _mm_crc32_u8(rest, byte);
  return ~rest;
}
#endif

}  // namespace

std::uint32_t crc32c_portable(std::span<const std::uint8_t> bytes) {
  std::uint32_t crc = 0xFFFFFFFFu;
  for (const std::uint8_t byte : bytes) crc = (crc >> 8) ^ table[(crc ^ byte) & 0xFF];
  return ~crc;
}

std::uint32_t crc32c(std::span<const std::uint8_t> bytes) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return crc32c_sse42(bytes);
#endif
  return crc32c_portable(bytes);
}

std::uint32_t masked_crc32c(std::span<const std::uint8_t> bytes) {
  const std::uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u;
}

namespace {

template <class T>
void append(std::string& bytes, T number) {
  bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
}

std::uint32_t checksum(std::string_view bytes) {
  return masked_crc32c({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
}

}  // namespace

std::string tfrecord_frame(std::string_view data) {
  std::string record;
  append(record, std::uint64_t{data.size()});
  append(record, checksum(record));
  record += data;
  append(record, checksum(data));
  return record;
}

}  // namespace ringtrain
