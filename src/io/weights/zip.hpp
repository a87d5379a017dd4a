#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "io/weights/weights_index.hpp"

namespace ringtrain::io {

/// A file in a zip file, stored as it is.
struct ZipEntry {
  std::string name;
  Part bytes;  ///< in the zip file
  std::uint32_t crc = 0;
};

/// The files of a zip file, with its 64-bit extensions, by their central directory. Throws
/// BadWeights, also where one is compressed or encrypted: torch.save() does neither.
std::vector<ZipEntry> read_zip(ByteSource& bytes);

/// CRC-32 as zip files have it, of `bytes` behind others whose CRC-32 is `before`.
std::uint32_t crc32(std::span<const std::uint8_t> bytes, std::uint32_t before = 0);

}  // namespace ringtrain::io
