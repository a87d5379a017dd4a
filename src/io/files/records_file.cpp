#include "io/files/records_file.hpp"

#include <fmt/core.h>

#include <bit>
#include <cstring>

#include "io/image/decoder.hpp"
#include "ringtrain/base/hash.hpp"

namespace ringtrain::io {

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

namespace {

static_assert(std::endian::native == std::endian::little && sizeof(Record) == 16,
              "a Record is written as it lies in memory");
using Bytes = std::span<const std::uint8_t>;

template <class T>
void append(std::vector<std::uint8_t>& bytes, const T* values, std::size_t count) {
  const auto* first = reinterpret_cast<const std::uint8_t*>(values);
  bytes.insert(bytes.end(), first, first + count * sizeof(T));
}

Bytes take(Bytes& bytes, std::uint64_t count) {
  if (count > bytes.size()) throw Undecodable("the table of samples is cut short");
  const Bytes taken = bytes.first(count);
  bytes = bytes.subspan(count);
  return taken;
}

template <class T>
T take_number(Bytes& bytes) {
  T number;
  std::memcpy(&number, take(bytes, sizeof(T)).data(), sizeof(T));
  return number;
}

}  // namespace

std::vector<std::uint8_t> encode_table(const RecordTable& table) {
  const std::uint64_t counts[] = {table.records.size(), table.class_names.size()};
  std::vector<std::uint8_t> bytes;
  append(bytes, counts, 2);
  append(bytes, table.records.data(), table.records.size());
  for (const std::string& name : table.class_names) {
    const auto length = static_cast<std::uint32_t>(name.size());
    append(bytes, &length, 1);
    append(bytes, name.data(), name.size());
  }
  const std::uint64_t hash = hash_bytes(std::as_bytes(std::span(bytes)));
  append(bytes, &hash, 1);
  return bytes;
}

RecordTable decode_table(Bytes bytes) {
  if (bytes.size() < sizeof(std::uint64_t)) throw Undecodable("the table of samples is cut short");
  Bytes hash = bytes.last(sizeof(std::uint64_t));
  bytes = bytes.first(bytes.size() - hash.size());
  if (hash_bytes(std::as_bytes(bytes)) != take_number<std::uint64_t>(hash))
    throw Undecodable("the table of samples has a wrong checksum");

  const auto records = take_number<std::uint64_t>(bytes), names = take_number<std::uint64_t>(bytes);
  if (records > bytes.size() / sizeof(Record) || names > bytes.size() / sizeof(std::uint32_t))
    throw Undecodable("the table of samples is cut short");
  if (names > most_classes)
    throw Undecodable(fmt::format("the table of samples has {} classes, more than the {} allowed",
                                  names, most_classes));
  RecordTable table{std::vector<Record>(records), std::vector<std::string>(names)};
  if (records > 0)
    std::memcpy(table.records.data(), take(bytes, records * sizeof(Record)).data(),
                records * sizeof(Record));
  for (std::string& name : table.class_names) {
    const Bytes text = take(bytes, take_number<std::uint32_t>(bytes));
    name.assign(text.begin(), text.end());
  }
  if (!bytes.empty()) throw Undecodable("the table of samples is followed by something else");
  return table;
}

}  // namespace ringtrain::io
