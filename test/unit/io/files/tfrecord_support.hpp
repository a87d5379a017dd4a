#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "unit/io/dataset/data_support.hpp"

namespace ringtrain::test {

/// One message of protobuf's wire format, field by field.
class Message {
 public:
  Message& number(int field, std::uint64_t value);
  Message& bytes(int field, std::string_view value);
  Message& bytes(int field, const Message& value) { return bytes(field, value.text_); }
  const std::string& text() const { return text_; }

 private:
  void varint(std::uint64_t value);
  std::string text_;
};

/// A Feature with one value.
Message bytes_feature(std::string_view value);
Message number_feature(std::int64_t value);

/// A tf.Example of these features.
std::string example(const std::vector<std::pair<std::string, Message>>& features);
/// One like ImageNet's: an image with its label, and what is of no use here.
std::string image_example(const Bytes& image, std::int64_t label, std::string_view synset = {});

/// `data` as a record of a TFRecord file.
std::string framed(std::string_view data);
/// The name of a shard.
std::string shard_name(std::string_view split, int number, int of, std::string_view ending = "");

}  // namespace ringtrain::test
