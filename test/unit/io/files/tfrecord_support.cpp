#include "unit/io/files/tfrecord_support.hpp"

#include <fmt/core.h>

#include "ringtrain/base/hash.hpp"

namespace ringtrain::test {
namespace {

template <class T>
std::string raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof(T)};
}

std::string masked_crc(std::string_view bytes) {
  const std::uint32_t crc =
      crc32c_portable({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
  return raw(((crc >> 15) | (crc << 17)) + 0xA282EAD8u);
}

std::string_view text_of(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

void Message::varint(std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) text_ += static_cast<char>(value | 0x80);
  text_ += static_cast<char>(value);
}

Message& Message::number(int field, std::uint64_t value) {
  varint(field << 3);
  varint(value);
  return *this;
}

Message& Message::bytes(int field, std::string_view value) {
  varint(field << 3 | 2);
  varint(value.size());
  text_ += value;
  return *this;
}

Message bytes_feature(std::string_view value) {
  return Message().bytes(1, Message().bytes(1, value));
}

Message number_feature(std::int64_t value) {
  return Message().bytes(3, Message().number(1, static_cast<std::uint64_t>(value)));
}

std::string example(const std::vector<std::pair<std::string, Message>>& features) {
  Message all;
  for (const auto& [name, feature] : features)
    all.bytes(1, Message().bytes(1, name).bytes(2, feature));
  return Message().bytes(1, all).text();
}

std::string image_example(const Bytes& image, std::int64_t label, std::string_view synset) {
  return example({{"image/height", number_feature(8)},
                  {"image/encoded", bytes_feature(text_of(image))},
                  {"image/class/synset", bytes_feature(synset)},
                  {"image/object/bbox/xmin", Message().bytes(2, Message().bytes(1, "abcd"))},
                  {"image/class/label", number_feature(label)}});
}

std::string framed(std::string_view data) {
  const std::string length = raw(std::uint64_t{data.size()});
  return length + masked_crc(length) + std::string(data) + masked_crc(data);
}

std::string shard_name(std::string_view split, int number, int of, std::string_view ending) {
  return fmt::format("{}-{:05}-of-{:05}{}", split, number, of, ending);
}

}  // namespace ringtrain::test
