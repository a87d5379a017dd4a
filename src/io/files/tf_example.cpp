#include "io/files/tf_example.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>

#include "io/image/decoder.hpp"
#include "ringtrain/base/text.hpp"

namespace ringtrain::io {
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
