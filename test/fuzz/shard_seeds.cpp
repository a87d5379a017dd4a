// Writes tf.Examples, TFRecords and packed records for fuzzers to start from. Usage: shard_seeds
// DIR
#include <fmt/core.h>

#include "io/files/records_file.hpp"
#include "unit/io/files/tfrecord_support.hpp"

using namespace ringtrain;
using namespace ringtrain::test;

namespace {

const Bytes image{0xFF, 0xD8, 0xFF, 1, 2, 3};

/// A record, then a table of it; the first bytes say where the table begins.
Bytes record_and_table() {
  Bytes body{26, 0};
  body.resize(26);
  const std::uint64_t offset = io::records_head_bytes + 2;
  const auto table = io::encode_table({{{offset, 14, 0}, {offset, 20, 1}}, {"cat", "dog"}});
  body.insert(body.end(), table.begin(), table.end());
  return body;
}

/// The same as a whole file.
Bytes records_file() {
  const Bytes body = record_and_table();
  const auto head =
      io::encode_head({io::records_head_bytes + body.size(), io::records_head_bytes + 26, 1});
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(head.data());
  Bytes file(bytes, bytes + io::records_head_bytes);
  file.insert(file.end(), body.begin(), body.end());
  return file;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return fmt::print("usage: {} DIR\n", argv[0]), 2;
  const std::filesystem::path home = argv[1];
  const Message packed = Message().bytes(3, Message().bytes(1, "\xE8\x07\x05"));
  write_text(home / "example", image_example(image, 7, "n01"));
  write_text(home / "packed", example({{"image/class/label", packed},
                                       {"image/encoded", bytes_feature("x")},
                                       {"image/class/text", bytes_feature("cat")}}));
  write_text(home / "unlabelled", example({{"image/encoded", bytes_feature("x")}}));
  write_text(home / "tfrecord", framed(image_example(image, 7)) + framed(image_example({}, 1)));
  write_file(home / "body", record_and_table());
  write_file(home / "records", records_file());
}
