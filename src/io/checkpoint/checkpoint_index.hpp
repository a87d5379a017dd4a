#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "ringtrain/io/checkpoint/checkpoint.hpp"

namespace ringtrain::io {

/// What is wrong with a checkpoint file, without its name.
struct Damage : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// One row of the tensor table.
struct StoredTensor {
  TensorInfo info;
  std::uint64_t offset = 0;  ///< in the file
  std::uint64_t bytes = 0;
  std::uint64_t hash = 0;  ///< XXH64 of the bytes
};

/// The content of the user block: all that a reader needs. See docs/reference/checkpoint-format.md.
struct CheckpointIndex {
  CheckpointMetadata metadata;
  std::string run_id;
  std::string lineage;  ///< as CheckpointFile::lineage() has it
  std::vector<StoredTensor> tensors;
  std::uint64_t user_block = 0;  ///< bytes before the HDF5 part
  std::uint64_t file_bytes = 0;  ///< of the whole file
  std::uint64_t outside_hash =
      0;  ///< XXH64 of all bytes that are in neither user block nor tensors
};

inline constexpr std::size_t header_bytes = 128;
inline constexpr std::uint64_t largest_user_block = 4 << 20;
inline constexpr std::size_t longest_run_id = 39, most_tensors = 16384;
inline constexpr std::size_t longest_text = 64 << 10;  // config, optimizer, plans, input

/// Bytes the user block needs for any values of offsets and hashes; throws Error(Exit::usage) when
/// they are more than the format allows.
std::uint64_t user_block_bytes(const CheckpointMetadata& metadata,
                               std::span<const TensorInfo> tensors);
/// The user block, of index.user_block bytes.
std::vector<std::byte> encode(const CheckpointIndex& index);

/// Bytes of the user block that starts with `header`, of a file of `file_bytes`. Throws Damage.
std::uint64_t checked_user_block(std::span<const std::byte> header, std::uint64_t file_bytes);
/// The lineage that `header`, the first bytes of a file, tells; nothing where they are no intact
/// header. What else is wrong with the file does not matter.
std::optional<std::string> lineage_in(std::span<const std::byte> header);
/// Whether it is empty or has the 16 hexadecimal digits of one.
bool is_lineage(std::string_view text);
/// Throws Damage unless the hashes fit, every tensor lies in the file and in no other tensor, and
/// all names and texts are as the format has them. Takes at most 64 MiB of memory.
CheckpointIndex decode(std::span<const std::byte> user_block, std::uint64_t file_bytes);

/// The tensors by rising offset: the order of their bytes in the file.
std::vector<const StoredTensor*> in_file_order(const CheckpointIndex& index);

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
