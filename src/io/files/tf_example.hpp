#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "io/files/byte_source.hpp"

namespace ringtrain::io {

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
