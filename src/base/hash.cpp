#include "ringtrain/base/hash.hpp"

#include <fmt/core.h>
#include <xxhash.h>

#include <new>

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

}  // namespace ringtrain
