#pragma once
#include <array>
#include <cstdint>
#include <span>

#include "io/files/byte_source.hpp"
#include "io/files/record_table.hpp"

namespace ringtrain {

// One file of packed images; its format is in docs/records_format.md.

inline constexpr std::size_t records_head_bytes = 64;
inline constexpr std::size_t record_hash_bytes = 8;  ///< before each image

struct RecordsHead {
  std::uint64_t file_bytes = 0, table_offset = 0;
  std::uint64_t pack_id = 0;  ///< of what was packed, and how: equal in all files of a split
};
std::array<std::uint64_t, records_head_bytes / 8> encode_head(const RecordsHead& head);

/// Both throw Undecodable where `file` is none of ours, cut short or damaged. The table's records
/// lie within the file and are of its classes.
RecordsHead read_head(ByteSource& file);
RecordTable read_table(ByteSource& file, const RecordsHead& head);

/// What stands before an image.
std::uint64_t record_hash(std::span<const std::uint8_t> image);
/// The image in a record's bytes, verified; empty for one that could not be read when it was
/// packed. Throws Undecodable.
Unpacked unpack_record(std::span<const std::uint8_t> record);

}  // namespace ringtrain
