#include "io/weights/zip.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "ringtrain/base/text.hpp"

namespace ringtrain::io {
namespace {

// PKWARE's APPNOTE.TXT 6.3, sections 4.3.7 to 4.3.16.
constexpr std::uint32_t entry_mark = 0x04034b50, directory_mark = 0x02014b50, end_mark = 0x06054b50,
                        end64_mark = 0x06064b50, locator64_mark = 0x07064b50;
constexpr std::uint64_t entry_head = 30, directory_head = 46, end_bytes = 22, end64_bytes = 56,
                        locator64_bytes = 20, longest_comment = 65535;
constexpr std::uint16_t extra64 = 1;
constexpr std::uint32_t full32 = 0xffffffff;

[[noreturn]] void fail_zip(const std::string& why) { throw BadWeights("its zip directory " + why); }

template <class T>
T read_number(std::span<const std::uint8_t> bytes, std::uint64_t at) {
  T value;
  if (at > bytes.size() || bytes.size() - at < sizeof value) fail_zip("ends early");
  std::memcpy(&value, &bytes[at], sizeof value);
  return value;
}

std::span<const std::uint8_t> zip_part(ByteSource& bytes, std::uint64_t offset,
                                       std::uint64_t size) {
  if (offset > bytes.size() || size > bytes.size() - offset)
    fail_zip("points behind the file's end");
  return bytes.at({offset, size});
}

struct ZipDirectory {
  std::uint64_t offset, size, entries;
};

// Of files that are longer than 4 GiB, or whose writer says so.
ZipDirectory find_directory64(ByteSource& bytes, std::uint64_t locator) {
  const auto offset = read_number<std::uint64_t>(zip_part(bytes, locator, locator64_bytes), 8);
  const auto end = zip_part(bytes, offset, end64_bytes);
  if (read_number<std::uint32_t>(end, 0) != end64_mark) fail_zip("lacks its 64-bit end");
  return {read_number<std::uint64_t>(end, 48), read_number<std::uint64_t>(end, 40),
          read_number<std::uint64_t>(end, 32)};
}

ZipDirectory find_directory(ByteSource& bytes) {
  const std::uint64_t tail = std::min(bytes.size(), end_bytes + longest_comment);
  if (tail < end_bytes) fail_zip("is missing: the file is cut short");
  const std::uint64_t first = bytes.size() - tail;
  const auto text = bytes.at({first, tail});
  std::uint64_t at = tail - end_bytes;
  while (read_number<std::uint32_t>(text, at) != end_mark)
    if (at-- == 0) fail_zip("is missing: the file is cut short");
  const ZipDirectory found{read_number<std::uint32_t>(text, at + 16),
                           read_number<std::uint32_t>(text, at + 12),
                           read_number<std::uint16_t>(text, at + 10)};
  const bool has64 = at >= locator64_bytes &&
                     read_number<std::uint32_t>(text, at - locator64_bytes) == locator64_mark;
  return has64 ? find_directory64(bytes, first + at - locator64_bytes) : found;
}

// Numbers that do not fit 32 bits stand in an extra field, in this order.
void take_extra64(std::span<const std::uint8_t> extra, std::array<std::uint64_t*, 3> wanted) {
  for (std::uint64_t at = 0; at + 4 <= extra.size();) {
    const auto kind = read_number<std::uint16_t>(extra, at),
               size = read_number<std::uint16_t>(extra, at + 2);
    at += 4;
    if (size > extra.size() - at) fail_zip("ends early");
    auto field = extra.subspan(at, size);
    at += size;
    if (kind != extra64) continue;
    for (std::uint64_t* value : wanted) {
      if (*value != full32) continue;
      *value = read_number<std::uint64_t>(field, 0);
      field = field.subspan(sizeof *value);
    }
  }
}

/// An entry of the directory: `bytes.offset` is that of its own head.
struct ListedEntry {
  ZipEntry entry;
  std::uint64_t next;
};

ListedEntry listed_at(std::span<const std::uint8_t> directory, std::uint64_t at) {
  if (read_number<std::uint32_t>(directory, at) != directory_mark) fail_zip("is damaged");
  const auto flags = read_number<std::uint16_t>(directory, at + 8),
             method = read_number<std::uint16_t>(directory, at + 10);
  const auto name = read_number<std::uint16_t>(directory, at + 28),
             extra = read_number<std::uint16_t>(directory, at + 30),
             comment = read_number<std::uint16_t>(directory, at + 32);
  std::uint64_t packed = read_number<std::uint32_t>(directory, at + 20),
                size = read_number<std::uint32_t>(directory, at + 24),
                offset = read_number<std::uint32_t>(directory, at + 42);
  const std::uint64_t next = at + directory_head + name + extra + comment;
  if (next > directory.size()) fail_zip("ends early");
  const auto* text = reinterpret_cast<const char*>(directory.data() + at + directory_head);
  take_extra64(directory.subspan(at + directory_head + name, extra), {&size, &packed, &offset});
  return {{.name = {text, name},
           .bytes = {offset, packed},
           .crc = read_number<std::uint32_t>(directory, at + 16),
           .compressed = method != 0 || packed != size,
           .encrypted = (flags & 1) != 0},
          next};
}

// Its head has a name and an extra field of lengths of its own.
void skip_head(ByteSource& bytes, ZipEntry& entry) {
  const auto head = zip_part(bytes, entry.bytes.offset, entry_head);
  if (read_number<std::uint32_t>(head, 0) != entry_mark) fail_zip("points to no file");
  entry.bytes.offset +=
      entry_head + read_number<std::uint16_t>(head, 26) + read_number<std::uint16_t>(head, 28);
  if (entry.bytes.offset > bytes.size() || entry.bytes.size > bytes.size() - entry.bytes.offset)
    fail_zip("points behind the file's end");
}

std::array<std::uint32_t, 256> make_crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < table.size(); ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) * 0xedb88320u);
    table[i] = value;
  }
  return table;
}

}  // namespace

std::vector<ZipEntry> read_zip(ByteSource& bytes) {
  const ZipDirectory directory = find_directory(bytes);
  if (directory.size > most_weights_index || directory.entries > most_weights * 2)
    fail_zip("is larger than 16 MiB");
  const auto found = zip_part(bytes, directory.offset, directory.size);
  std::vector<ZipEntry> entries;
  std::uint64_t at = 0;
  for (std::uint64_t i = 0; i < directory.entries; ++i) {
    ListedEntry listed = listed_at(found, at);
    at = listed.next;
    entries.push_back(std::move(listed.entry));
  }
  for (ZipEntry& entry : entries) skip_head(bytes, entry);
  return entries;
}

void expect_plain(const ZipEntry& entry) {
  if (entry.compressed || entry.encrypted)
    throw BadWeights(
        Exit::incompatible_checkpoint,
        fmt::format("{} in it is {}, which torch.save() does not do", brief(entry.name, 100),
                    entry.encrypted ? "encrypted" : "compressed"));
}

std::uint32_t crc32(std::span<const std::uint8_t> bytes, std::uint32_t before) {
  static const std::array<std::uint32_t, 256> table = make_crc_table();
  std::uint32_t crc = ~before;
  for (const std::uint8_t byte : bytes) crc = table[(crc ^ byte) & 0xff] ^ (crc >> 8);
  return ~crc;
}

}  // namespace ringtrain::io
