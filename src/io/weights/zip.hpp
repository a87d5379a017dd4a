#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "io/weights/weights_index.hpp"

namespace ringtrain::io {

/// A file in a zip file.
struct ZipEntry {
  std::string name;
  Part bytes;  ///< in the zip file
  std::uint32_t crc = 0;
  bool compressed = false, encrypted = false;
};

/// The files of a zip file, with its 64-bit extensions, by their central directory. Throws
/// BadWeights.
std::vector<ZipEntry> read_zip(ByteSource& bytes);

/// Throws BadWeights where it is compressed or encrypted: torch.save() does neither.
void expect_plain(const ZipEntry& entry);

/// CRC-32 as zip files have it, of `bytes` behind others whose CRC-32 is `before`.
std::uint32_t crc32(std::span<const std::uint8_t> bytes, std::uint32_t before = 0);

}  // namespace ringtrain::io
