#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/files/byte_source.hpp"
#include "io/files/records_file.hpp"

namespace ringtrain::io {

/// What one TFRecord shard holds.
struct TfrecordShard {
  /// Each is a tf.Example and its checksum. A label is as the file has it, not verified; -1 for a
  /// record that is damaged, which unpack_tfrecord() finds, too.
  std::vector<Record> records;
  std::map<std::int32_t, std::string> class_names;  ///< by label, where the file has names
};

/// Labels of tf.Examples are 0 to this.
inline constexpr std::int32_t largest_label = 1'000'000;

/// Walks through a TFRecord file of tf.Examples with images, looking at no image. A record's bytes
/// are checked only where they make no sense. Throws Undecodable, naming the byte, where the file
/// is cut short, is none, or holds something else than labelled images.
TfrecordShard index_tfrecord(ByteSource& file);

/// Whether a record's bytes have the checksum that follows them.
bool is_whole_tfrecord(std::span<const std::uint8_t> record);

/// The encoded image in a record's bytes, perhaps empty, and its label. Their checksum is verified
/// first. Throws Undecodable.
Unpacked unpack_tfrecord(std::span<const std::uint8_t> record);

/// What training wants of a serialised tf.Example; unset is what it does not have.
struct Example {
  std::optional<Part> image;          ///< image/encoded
  std::optional<std::int64_t> label;  ///< image/class/label
  std::optional<Part> synset, text;   ///< image/class/synset and image/class/text
};

/// Finds it in protobuf's wire format, looking at no byte of an image. Throws Undecodable where
/// `bytes` of `source` are no tf.Example.
Example parse_example(ByteSource& source, Part bytes);

/// The names of all its features, with commas, escaped and cut to a line. Throws Undecodable.
std::string feature_names(ByteSource& source, Part bytes);

}  // namespace ringtrain::io
