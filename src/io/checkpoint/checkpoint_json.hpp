#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/checkpoint/checkpoint_index.hpp"

namespace ringtrain::io {

/// What of a checkpoint's index is JSON.
struct IndexJson {
  CheckpointMetadata metadata;
  std::vector<StoredTensor> tensors;
};
std::string index_json(const CheckpointMetadata& metadata, std::span<const StoredTensor> tensors);
/// Throws Damage unless it is of bounded size and depth, and all names and texts are as the format
/// has them. Where the tensors lie is not looked at.
IndexJson parse_index_json(std::string_view text);

/// Metadata as JSON text, as it travels to the writer process.
std::string to_json_text(const CheckpointMetadata& metadata);
CheckpointMetadata metadata_from_json_text(std::string_view text);

}  // namespace ringtrain::io
