// Any bytes as a file of packed records, and as the records and table of one whose checksums are
// right.
#include <cstring>

#include "io/files/records_file.hpp"
#include "io/image/decoder.hpp"

using namespace ringtrain;

namespace {

void read(io::ByteSource& source, const io::RecordTable& table) {
  for (const io::Record& record : table.records) {
    if (record.label >= std::ssize(table.class_names)) __builtin_trap();
    try {
      io::unpack_record(source.at({record.offset, record.bytes}));
    } catch (const io::Undecodable&) {
    }
  }
}

void load(std::span<const std::uint8_t> file) {
  io::MemorySource source(file);
  try {
    read(source, io::read_table(source, io::read_head(source)));
  } catch (const io::Undecodable&) {
  }
}

/// `body` behind a head, its last bytes replaced by the right checksum; its first two say where the
/// table begins.
std::vector<std::uint8_t> with_checksums(std::span<const std::uint8_t> body) {
  std::vector<std::uint8_t> file(io::records_head_bytes);
  file.insert(file.end(), body.begin(), body.end());
  const std::size_t hashed = body.size() - sizeof(std::uint64_t);
  const std::size_t table = (body[0] + 256u * body[1]) % (hashed + 1);
  const std::uint64_t hash = io::record_hash(body.subspan(table, hashed - table));
  std::memcpy(&file[io::records_head_bytes + hashed], &hash, sizeof(hash));
  const auto head = io::encode_head({file.size(), io::records_head_bytes + table, 1});
  std::memcpy(file.data(), head.data(), io::records_head_bytes);
  return file;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  load({bytes, size});
  if (size >= 2 + sizeof(std::uint64_t)) load(with_checksums({bytes, size}));
  return 0;
}
