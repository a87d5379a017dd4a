#include "io/files/record_table.hpp"

#include <fmt/core.h>

#include <bit>
#include <cstring>

#include "io/image/decoder.hpp"
#include "ringtrain/base/hash.hpp"

namespace ringtrain {
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

}  // namespace ringtrain
