#pragma once
#include <array>
#include <cstddef>
#include <span>
#include <string>

namespace ringtrain {

using Sha256 = std::array<std::byte, 32>;

/// HMAC-SHA256 (RFC 2104) of `message` under `key`, by libcrypto, which reads no file for it. Safe
/// on several threads at once. Throws Error.
Sha256 hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message);

/// Whether both hold the same; takes equally long whatever differs.
bool same_secret(std::span<const std::byte> a, std::span<const std::byte> b);

/// Fills `bytes` with random bits of the kernel. Throws Error where it has none.
void fill_randomly(std::span<std::byte> bytes);

/// 16 hexadecimal digits that nobody has drawn before, on any host: 64 bits of the kernel's random
/// numbers. Process ids repeat between hosts, and so do gethostid() and host names.
std::string random_token();

}  // namespace ringtrain
