#include "io/files/records_file.hpp"

#include <fmt/core.h>

#include <cstring>

#include "io/image/decoder.hpp"
#include "ringtrain/base/hash.hpp"

namespace ringtrain {
namespace {

// 89 'rtrec' 0D 0A: what changes line ends, or the eighth bit, is found out.
constexpr std::uint64_t records_magic = 0x0A0D636572747289;
constexpr std::uint64_t version = 1;
// Far above what is packed: memory is not taken for any number that a file says.
constexpr std::uint64_t largest_table = std::uint64_t{1} << 30;
constexpr std::uint64_t largest_stored = (std::uint64_t{1} << 29) + record_hash_bytes;

using Head = std::array<std::uint64_t, records_head_bytes / 8>;

std::uint64_t hash_of(const Head& head) {
  return hash_bytes(std::as_bytes(std::span(head).first(head.size() - 1)));
}

void check_size(std::string_view what, std::uint64_t bytes, std::uint64_t allowed) {
  if (bytes > allowed)
    throw Undecodable(fmt::format(
        "{} has {} bytes, more than the {} allowed; pack the images again", what, bytes, allowed));
}

}  // namespace

Head encode_head(const RecordsHead& head) {
  Head words{records_magic, version, head.file_bytes, head.table_offset, head.pack_id};
  words.back() = hash_of(words);
  return words;
}

RecordsHead read_head(ByteSource& file) {
  if (file.size() < records_head_bytes) throw Undecodable("it is cut short; copy the file again");
  Head words;
  std::memcpy(words.data(), file.at({0, records_head_bytes}).data(), records_head_bytes);
  if (words[0] != records_magic) throw Undecodable("it is no file that train --pack made");
  if (words.back() != hash_of(words))
    throw Undecodable("its head has a wrong checksum; copy the file again");
  if (words[1] != version)
    throw Undecodable(
        fmt::format("it has version {} of the format, this program reads {}; pack the "
                    "images again",
                    words[1], version));
  const RecordsHead head{words[2], words[3], words[4]};
  if (file.size() != head.file_bytes)
    throw Undecodable(fmt::format("it has {} bytes where it should have {}; copy the file again",
                                  file.size(), head.file_bytes));
  if (head.table_offset < records_head_bytes || head.table_offset > head.file_bytes)
    throw Undecodable("its head makes no sense; pack the images again");
  return head;
}

RecordTable read_table(ByteSource& file, const RecordsHead& head) {
  const std::uint64_t table_bytes = head.file_bytes - head.table_offset;
  check_size("its table", table_bytes, largest_table);
  RecordTable table = decode_table(file.at({head.table_offset, table_bytes}));
  for (const Record& record : table.records) {
    check_size("a record", record.bytes, largest_stored);
    if (record.offset < records_head_bytes || record.offset > head.table_offset ||
        record.bytes > head.table_offset - record.offset || record.label < 0 ||
        record.label >= std::ssize(table.class_names))
      throw Undecodable("its table makes no sense; pack the images again");
  }
  return table;
}

std::uint64_t record_hash(std::span<const std::uint8_t> image) {
  return hash_bytes(std::as_bytes(image));
}

Unpacked unpack_record(std::span<const std::uint8_t> record) {
  if (record.size() < record_hash_bytes) throw Undecodable("the record is cut short");
  std::uint64_t hash;
  std::memcpy(&hash, record.data(), sizeof(hash));
  const auto image = record.subspan(record_hash_bytes);
  if (hash != record_hash(image))
    throw Undecodable("the data have a wrong checksum: the record is damaged");
  return {image};
}

}  // namespace ringtrain
