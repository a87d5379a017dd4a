#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace ringtrain {

/// CRC-32C (Castagnoli), by the processor's instruction where it has one.
std::uint32_t crc32c(std::span<const std::uint8_t> bytes);
/// As TFRecord files have it: no checksum of what holds checksums.
std::uint32_t masked_crc32c(std::span<const std::uint8_t> bytes);
/// crc32c, on any processor.
std::uint32_t crc32c_portable(std::span<const std::uint8_t> bytes);

/// `data` as a record of a TFRecord file: its length, a checksum of that, `data`, a checksum of it.
std::string tfrecord_frame(std::string_view data);

}  // namespace ringtrain
