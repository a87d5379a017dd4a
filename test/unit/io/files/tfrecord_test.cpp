#include "io/files/tfrecord.hpp"

#include <numeric>

#include "io/image/decoder.hpp"
#include "ringtrain/base/hash.hpp"
#include "support/catch.hpp"
#include "unit/io/files/tfrecord_support.hpp"

using namespace ringtrain;
using namespace ringtrain::io;
using namespace ringtrain::test;
using Catch::Contains;

namespace {

Bytes bytes_of(std::string_view text) { return {text.begin(), text.end()}; }

Example parsed(std::string_view text) {
  const Bytes bytes = bytes_of(text);
  MemorySource source(bytes);
  return parse_example(source, {0, source.size()});
}

TfrecordShard indexed(std::string_view file) {
  const Bytes bytes = bytes_of(file);
  MemorySource source(bytes);
  return index_tfrecord(source);
}

std::string shard_complaint(std::string_view file) {
  try {
    indexed(file);
  } catch (const Undecodable& failure) {
    return failure.what();
  }
  return "";
}

const Bytes stored_image{0xFF, 0xD8, 1, 2, 3};
const std::string one = framed(image_example(stored_image, 7, "n01"));

/// `text` with the byte at `place` changed.
std::string damaged(std::string text, std::size_t place) {
  text[place] = static_cast<char>(text[place] ^ 0x10);
  return text;
}

}  // namespace

TEST_CASE("crc32c: agrees with RFC 3720's examples, with and without the instruction") {
  Bytes rising(32);
  std::iota(rising.begin(), rising.end(), std::uint8_t{0});

  for (const auto crc : {crc32c, crc32c_portable}) {
    CHECK(crc({}) == 0);
    CHECK(crc(Bytes(32, 0)) == 0x8A9136AA);
    CHECK(crc(Bytes(32, 0xFF)) == 0x62A8AB43);
    CHECK(crc(rising) == 0x46DD794E);
    CHECK(crc(bytes_of("123456789")) == 0xE3069283);
  }
}

TEST_CASE("crc32c: both ways agree at every length and place") {
  const auto bytes = gradient_image({5, 7}).pixels;

  for (std::size_t first = 0; first < 9; ++first)
    for (std::size_t count = 0; first + count <= bytes.size(); ++count) {
      const auto part = std::span(bytes).subspan(first, count);
      REQUIRE(crc32c(part) == crc32c_portable(part));
    }
}

TEST_CASE("tf.Example: image, label and names are found in any order, unknown features skipped") {
  const Message label = number_feature(-3), image = bytes_feature("jpeg");
  const auto one_way = parsed(example({{"image/encoded", image}, {"image/class/label", label}}));
  const auto other_way = parsed(example({{"image/class/label", label},
                                         {"a", bytes_feature("b")},
                                         {"image/encoded", image},
                                         {"image/class/text", bytes_feature("cat")},
                                         {"image/class/synset", bytes_feature("n02")}}));

  CHECK(one_way.label == -3);
  REQUIRE(one_way.image);
  CHECK(one_way.image->size == 4);
  CHECK(!one_way.text);
  CHECK(other_way.label == -3);
  CHECK(other_way.image);
  CHECK(other_way.text->size == 3);
  CHECK(other_way.synset->size == 3);
}

TEST_CASE("tf.Example: packed and single numbers, and an entry whose value is before its key") {
  const Message packed = Message().bytes(3, Message().bytes(1, "\xE8\x07\x05"));
  const Message entry =
      Message().bytes(2, number_feature(5)).bytes(1, std::string_view("image/class/label"));

  CHECK(parsed(example({{"image/class/label", packed}})).label == 1000);
  CHECK(parsed(Message().bytes(1, Message().bytes(1, entry)).text()).label == 5);
}

TEST_CASE("tf.Example: features of another type or without a value are not there") {
  const Message empty_list = Message().bytes(1, std::string_view());
  const Message no_numbers = Message().bytes(3, Message().bytes(1, std::string_view()));
  const auto found = parsed(example({{"image/encoded", number_feature(1)},
                                     {"image/class/label", bytes_feature("1")},
                                     {"image/class/text", empty_list}}));

  CHECK(!found.image);
  CHECK(!found.label);
  CHECK(!found.text);
  CHECK(!parsed(example({{"image/class/label", no_numbers}})).label);
  CHECK(!parsed("").image);
}

TEST_CASE("tf.Example: every prefix and every changed byte is refused or harmless") {
  const std::string whole = image_example(stored_image, 7, "n01");

  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (const std::string& text : {whole.substr(0, i), damaged(whole, i)}) {
      try {
        const Example found = parsed(text);
        if (found.image) REQUIRE(found.image->end() <= text.size());
      } catch (const Undecodable&) {
      }
    }
  }
  CHECK_THROWS_WITH(parsed(Message().bytes(1, "\x0A\x7F").text()), Contains("127 bytes where 0"));
  CHECK_THROWS_WITH(parsed("\x0B"), Contains("unknown type"));
  CHECK_THROWS_WITH(parsed(std::string(11, '\xFF')), Contains("no end"));
}

TEST_CASE("TFRecord: every record's place, label and class name") {
  const auto shard = indexed(one + framed(image_example({}, 0)) + one);

  REQUIRE(shard.records.size() == 3);
  CHECK(shard.records[0] == Record{12, static_cast<std::uint32_t>(one.size() - 12), 7});
  CHECK(shard.records[1].label == 0);
  CHECK(shard.records[2].offset + shard.records[2].bytes ==
        2 * one.size() + framed(image_example({}, 0)).size());
  CHECK(shard.class_names == std::map<std::int32_t, std::string>{{7, "n01"}});
  CHECK(indexed("").records.empty());
}

TEST_CASE("TFRecord: a record gives its image back, and nothing once a byte of it changed") {
  const Bytes record = bytes_of(one.substr(12));
  const auto image = unpack_tfrecord(record).image;

  CHECK(Bytes(image.begin(), image.end()) == stored_image);
  for (std::size_t i = 0; i < record.size(); ++i)
    REQUIRE_THROWS_AS(unpack_tfrecord(bytes_of(damaged(one.substr(12), i))), Undecodable);
  CHECK_THROWS_AS(unpack_tfrecord({}), Undecodable);
}

TEST_CASE("TFRecord: what cannot be indexed is told with the byte and what to do") {
  const std::string nothing(40, '\0');

  CHECK_THAT(shard_complaint("hello, I am no shard"), Contains("no TFRecord file"));
  CHECK_THAT(shard_complaint("\x1F\x8B" + nothing), Contains("gunzip"));
  CHECK_THAT(shard_complaint(nothing), Contains("no TFRecord file"));
  CHECK_THAT(shard_complaint(one + damaged(one, 3)),
             Contains(std::to_string(one.size())) && Contains("copy the file again"));
  CHECK_THAT(shard_complaint(one + damaged(one, 9)), Contains("wrong checksum"));
  for (std::size_t cut = 1; cut < one.size(); ++cut)
    REQUIRE_THAT(shard_complaint(one + one.substr(0, cut)),
                 Contains("it ends at byte " + std::to_string(one.size() + cut)) &&
                     Contains("record that begins at byte " + std::to_string(one.size())));
}

TEST_CASE("TFRecord: a hostile length is refused before memory is taken for it") {
  // Heads of records that announce 2^63 and 2^64 - 1 bytes, with right checksums.
  const auto announcing = [](std::uint64_t length) {
    const std::string text(reinterpret_cast<const char*>(&length), 8);
    return text + framed(text).substr(8 + 4 + 8) + std::string(100, 'x');
  };

  CHECK_THAT(shard_complaint(announcing(std::uint64_t{1} << 63)), Contains("it ends at byte 112"));
  CHECK_THAT(shard_complaint(announcing(~std::uint64_t{0})), Contains("it ends at byte 112"));
  CHECK_THAT(shard_complaint(announcing(97)), Contains("it ends at byte 112"));
}

TEST_CASE("TFRecord: an undamaged Example that holds no labelled image ends the job") {
  const std::string only_image = example({{"image/encoded", bytes_feature("x")}, {"b\n", {}}});
  const std::string only_label = example({{"image/class/label", number_feature(1)}});

  CHECK_THAT(shard_complaint(one + framed(only_image)),
             Contains("no feature image/class/label") && Contains("image/encoded, b\\x0a") &&
                 Contains("byte " + std::to_string(one.size())));
  CHECK_THAT(shard_complaint(framed(only_label)), Contains("no feature image/encoded"));
  CHECK_THAT(shard_complaint(framed("")), Contains("its features are: none"));
  CHECK_THAT(shard_complaint(framed("text")), Contains("no tf.Example"));
  CHECK_THAT(shard_complaint(framed(image_example(stored_image, -1))), Contains("label -1"));
  CHECK_THAT(shard_complaint(framed(image_example(stored_image, 1'000'001))),
             Contains("label 1000001"));
}

TEST_CASE("TFRecord: a damaged record that makes no sense costs its own sample only") {
  std::string wrecked = one;
  for (std::size_t i = 12; i < one.size() - 4; ++i) wrecked[i] = '\x0B';

  const auto shard = indexed(one + wrecked + one);

  REQUIRE(shard.records.size() == 3);
  CHECK(shard.records[0].label == 7);
  CHECK(shard.records[1].label == -1);
  CHECK(shard.records[2].label == 7);
}
