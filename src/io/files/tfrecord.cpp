#include "io/files/tfrecord.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "io/image/decoder.hpp"
#include "ringtrain/base/hash.hpp"
#include "ringtrain/base/text.hpp"

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

namespace {

constexpr std::uint64_t longest_varint = 10;
constexpr std::uint64_t longest_looked_at = 100;  // of a feature that is looked at
constexpr std::size_t longest_list = 300;

/// The fields of one message of protobuf's wire format, one after the other.
class Fields {
 public:
  Fields(ByteSource& source, Part message)
      : source_(source), next_(message.offset), end_(message.end()) {}

  /// Moves to the next field; false after the last.
  bool next();
  bool is_message(std::uint64_t number) const { return is(number, 2); }
  bool is_number(std::uint64_t number) const { return is(number, 0); }
  Part body() const { return body_; }             ///< of a message, text or bytes
  std::uint64_t value() const { return value_; }  ///< of a number
  std::uint64_t varint();                         ///< for packed numbers

 private:
  bool is(std::uint64_t number, std::uint64_t type) const { return tag_ == (number << 3 | type); }
  Part take(std::uint64_t size);

  ByteSource& source_;
  std::uint64_t next_, end_, tag_ = 0, value_ = 0;
  Part body_;
};

bool Fields::next() {
  if (next_ == end_) return false;
  tag_ = varint();
  switch (tag_ & 7) {
    case 0:
      value_ = varint();
      return true;
    case 1:
      body_ = take(8);
      return true;
    case 2:
      body_ = take(varint());
      return true;
    case 5:
      body_ = take(4);
      return true;
    default:
      throw Undecodable(
          fmt::format("no tf.Example: a field of unknown type near its byte {}", next_));
  }
}

std::uint64_t Fields::varint() {
  const auto bytes = source_.at({next_, std::min(longest_varint, end_ - next_)});
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    value |= std::uint64_t{bytes[i] & 0x7Fu} << (7 * i);
    if (bytes[i] >= 0x80) continue;
    next_ += i + 1;
    return value;
  }
  throw Undecodable("no tf.Example: a number in it has no end");
}

Part Fields::take(std::uint64_t size) {
  if (size > end_ - next_)
    throw Undecodable(
        fmt::format("no tf.Example: a field of {} bytes where {} are left", size, end_ - next_));
  const Part part{next_, size};
  next_ += size;
  return part;
}

/// The first value of a Feature that is a BytesList.
std::optional<Part> bytes_of(ByteSource& source, Part feature) {
  for (Fields kinds(source, feature); kinds.next();) {
    if (!kinds.is_message(1)) continue;
    for (Fields list(source, kinds.body()); list.next();)
      if (list.is_message(1)) return list.body();
  }
  return std::nullopt;
}

/// The first value of a Feature that is an Int64List, packed or not.
std::optional<std::int64_t> number_of(ByteSource& source, Part feature) {
  for (Fields kinds(source, feature); kinds.next();) {
    if (!kinds.is_message(3)) continue;
    for (Fields list(source, kinds.body()); list.next();) {
      if (list.is_number(1)) return static_cast<std::int64_t>(list.value());
      if (!list.is_message(1) || list.body().size == 0) continue;
      return static_cast<std::int64_t>(Fields(source, list.body()).varint());
    }
  }
  return std::nullopt;
}

std::string_view text_of(ByteSource& source, Part part) {
  const auto bytes = source.at({part.offset, std::min(part.size, longest_looked_at)});
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Example { Features features = 1; }, Features { map<string, Feature> feature = 1; }
template <class Visit>
void for_each_feature(ByteSource& source, Part bytes, Visit visit) {
  for (Fields example(source, bytes); example.next();) {
    if (!example.is_message(1)) continue;
    for (Fields features(source, example.body()); features.next();) {
      if (!features.is_message(1)) continue;
      Part name, feature;
      for (Fields entry(source, features.body()); entry.next();) {
        if (entry.is_message(1)) name = entry.body();
        if (entry.is_message(2)) feature = entry.body();
      }
      visit(name, feature);
    }
  }
}

}  // namespace

Example parse_example(ByteSource& source, Part bytes) {
  Example example;
  for_each_feature(source, bytes, [&](Part name, Part feature) {
    const std::string_view text = text_of(source, name);  // gone once `source` is looked at again
    if (text == "image/encoded")
      example.image = bytes_of(source, feature);
    else if (text == "image/class/label")
      example.label = number_of(source, feature);
    else if (text == "image/class/synset")
      example.synset = bytes_of(source, feature);
    else if (text == "image/class/text")
      example.text = bytes_of(source, feature);
  });
  return example;
}

std::string feature_names(ByteSource& source, Part bytes) {
  std::string names;
  for_each_feature(source, bytes, [&](Part name, Part) {
    if (names.size() < longest_list)
      names += (names.empty() ? "" : ", ") + printable(text_of(source, name));
  });
  return names.empty() ? "none" : names;
}

}  // namespace ringtrain::io
