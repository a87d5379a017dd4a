#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/files/byte_source.hpp"

namespace ringtrain::io {

/// One sample in a shard.
struct Record {
  std::uint64_t offset = 0;  ///< of its bytes, in the file
  std::uint32_t bytes = 0;
  std::int32_t label = 0;
  friend bool operator==(const Record&, const Record&) = default;
};

/// What a record's bytes hold.
struct Unpacked {
  std::span<const std::uint8_t> image;
  std::optional<std::int64_t> label = {};  ///< where the format has it beside the image
};
/// Finds that and verifies the bytes. Throws Undecodable.
using Unpack = Unpacked (*)(std::span<const std::uint8_t> record);

/// Samples and the names of their classes.
struct RecordTable {
  std::vector<Record> records;
  std::vector<std::string> class_names;
};

/// More make no data set; a name takes eight times the four bytes that it may have in a table.
inline constexpr std::size_t most_classes = 1'000'001;

/// The table's bytes, with a checksum: docs/reference/records-format.md.
std::vector<std::uint8_t> encode_table(const RecordTable& table);
/// Throws Undecodable for bytes that encode_table() did not make. What records say is not looked
/// at.
RecordTable decode_table(std::span<const std::uint8_t> bytes);

// One file of packed images; its format is in docs/reference/records-format.md.

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

}  // namespace ringtrain::io
