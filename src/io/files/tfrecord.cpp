#include "io/files/tfrecord.hpp"

#include <fmt/core.h>

#include <cstring>

#include "io/files/tf_example.hpp"
#include "io/image/decoder.hpp"
#include "ringtrain/base/hash.hpp"

namespace ringtrain::io {
namespace {

// A record: its length (8 bytes), the length's checksum (4), the data, the data's checksum (4).
constexpr std::uint64_t head_bytes = 12, checksum_bytes = 4;
constexpr std::uint64_t largest_record = std::uint64_t{1} << 29;  // far above any image
constexpr std::size_t longest_feature = 200;

template <class T>
T little_endian(std::span<const std::uint8_t> bytes) {
  T number;
  std::memcpy(&number, bytes.data(), sizeof(T));
  return number;
}

[[noreturn]] void fail_at_head(std::uint64_t offset, std::span<const std::uint8_t> head) {
  if (offset > 0)
    throw Undecodable(
        fmt::format("the length of the record at byte {} has a wrong checksum, so that "
                    "what follows cannot be found; copy the file again",
                    offset));
  const bool gzip = head[0] == 0x1F && head[1] == 0x8B;
  throw Undecodable(gzip ? "it is compressed; unpack it with gunzip"
                         : "no TFRecord file: the first record's length has a wrong checksum");
}

[[noreturn]] void fail_cut(std::uint64_t offset, std::uint64_t size) {
  throw Undecodable(
      fmt::format("it ends at byte {}, inside the record that begins at byte {}; copy "
                  "the file again",
                  size, offset));
}

/// Where the data of the record at `offset` lie.
Part data_at(ByteSource& file, std::uint64_t offset) {
  const std::uint64_t left = file.size() - offset;
  if (left < head_bytes + checksum_bytes) fail_cut(offset, file.size());
  const auto head = file.at({offset, head_bytes});
  const auto length = little_endian<std::uint64_t>(head.first(8));
  if (masked_crc32c(head.first(8)) != little_endian<std::uint32_t>(head.last(4)))
    fail_at_head(offset, head);
  if (length > left - head_bytes - checksum_bytes) fail_cut(offset, file.size());
  if (length > largest_record)
    throw Undecodable(fmt::format("the record at byte {} has {} bytes, more than the {} allowed",
                                  offset, length, largest_record));
  return {offset + head_bytes, length};
}

/// Why an undamaged tf.Example is none of a labelled image; empty where it is one.
std::string complaint(ByteSource& file, Part data, const Example& example) {
  if (!example.image || !example.label)
    return fmt::format(
        "has no feature {}; its features are: {}",
        example.image ? "image/class/label with a number" : "image/encoded with bytes",
        feature_names(file, data));
  if (*example.label < 0 || *example.label > largest_label)
    return fmt::format("has the label {}; labels are 0 to {}", *example.label, largest_label);
  return {};
}

class Indexer {
 public:
  explicit Indexer(ByteSource& file) : file_(file) {}
  TfrecordShard run();

 private:
  std::int32_t label_of(Part data);
  std::int32_t label_in(Part data);
  void name_class(std::int32_t label, const Example& example);

  ByteSource& file_;
  TfrecordShard shard_;
};

TfrecordShard Indexer::run() {
  for (std::uint64_t offset = 0; offset < file_.size();) {
    const Part data = data_at(file_, offset);
    const std::int32_t label = label_of(data);
    shard_.records.push_back(
        {data.offset, static_cast<std::uint32_t>(data.size + checksum_bytes), label});
    offset = data.end() + checksum_bytes;
  }
  return std::move(shard_);
}

// What makes no sense is forgiven where the record is damaged: one sample is lost, not the data
// set.
std::int32_t Indexer::label_of(Part data) try {
  return label_in(data);
} catch (const Undecodable& failure) {
  if (!is_whole_tfrecord(file_.at({data.offset, data.size + checksum_bytes}))) return -1;
  throw Undecodable(
      fmt::format("the record at byte {} {}", data.offset - head_bytes, failure.what()));
}

std::int32_t Indexer::label_in(Part data) {
  const Example example = parse_example(file_, data);
  if (const std::string why = complaint(file_, data, example); !why.empty()) throw Undecodable(why);
  const auto label = static_cast<std::int32_t>(*example.label);
  name_class(label, example);
  return label;
}

// As the directories of an image folder are named, where there is a choice.
void Indexer::name_class(std::int32_t label, const Example& example) {
  const auto& name = example.synset ? example.synset : example.text;
  if (!name || name->size == 0 || shard_.class_names.contains(label)) return;
  const auto bytes = file_.at({name->offset, std::min<std::uint64_t>(name->size, longest_feature)});
  shard_.class_names[label].assign(bytes.begin(), bytes.end());
}

}  // namespace

TfrecordShard index_tfrecord(ByteSource& file) { return Indexer(file).run(); }

bool is_whole_tfrecord(std::span<const std::uint8_t> record) {
  if (record.size() < checksum_bytes) return false;
  const auto data = record.first(record.size() - checksum_bytes);
  return masked_crc32c(data) == little_endian<std::uint32_t>(record.last(checksum_bytes));
}

Unpacked unpack_tfrecord(std::span<const std::uint8_t> record) {
  if (!is_whole_tfrecord(record))
    throw Undecodable("the data have a wrong checksum: the record is damaged");
  MemorySource source(record.first(record.size() - checksum_bytes));
  const Example example = parse_example(source, {0, source.size()});
  if (!example.image) throw Undecodable("no image/encoded in it");
  if (!example.label) throw Undecodable("no image/class/label in it");
  return {source.at(*example.image), example.label};
}

}  // namespace ringtrain::io
