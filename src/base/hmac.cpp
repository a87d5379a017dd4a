#include "ringtrain/base/hmac.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <cstdint>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/hash.hpp"

namespace ringtrain {

namespace {

// Without openssl.cnf, which others may have written, and without work at the process's end, where
// other threads may still be in libcrypto. Only the first call does something.
void start_libcrypto() {
  constexpr std::uint64_t alone = OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_NO_ATEXIT;
  if (::OPENSSL_init_crypto(alone, nullptr) != 1)
    throw Error("OPENSSL_init_crypto", "libcrypto does not start");
}

}  // namespace

Sha256 hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message) {
  start_libcrypto();
  Sha256 code;
  unsigned size = 0;
  const auto* const made =
      ::HMAC(::EVP_sha256(), key.data(), static_cast<int>(key.size()),
             reinterpret_cast<const unsigned char*>(message.data()), message.size(),
             reinterpret_cast<unsigned char*>(code.data()), &size);
  if (made == nullptr || size != code.size()) throw Error("HMAC", "libcrypto makes no HMAC-SHA256");
  return code;
}

bool same_secret(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && ::CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

void fill_randomly(std::span<std::byte> bytes) {
  // Up to 256 bytes come whole, whatever signals do.
  expects(bytes.size() <= 256, "fill_randomly: at most 256 bytes");
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    throw Error("getrandom", "gave no random bits");
}

std::string random_token() {
  std::uint64_t bits = 0;
  if (::getrandom(&bits, sizeof bits, 0) != static_cast<ssize_t>(sizeof bits))
    throw Error("getrandom", "gave no random bits");
  return hex(bits);
}

}  // namespace ringtrain
