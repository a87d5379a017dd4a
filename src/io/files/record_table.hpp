#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ringtrain {

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

/// As bytes, with a checksum: docs/records_format.md.
std::vector<std::uint8_t> encode_table(const RecordTable& table);
/// Throws Undecodable for bytes that encode_table() did not make. What records say is not looked
/// at.
RecordTable decode_table(std::span<const std::uint8_t> bytes);

}  // namespace ringtrain
