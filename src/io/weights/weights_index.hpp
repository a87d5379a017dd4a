#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "io/files/byte_source.hpp"
#include "ringtrain/base/error.hpp"
#include "ringtrain/io/checkpoint/checkpoint.hpp"

namespace ringtrain::io {

/// Why a file of weights is not taken, without its name.
struct BadWeights : std::runtime_error {
  BadWeights(Exit with_code, const std::string& why) : std::runtime_error(why), code(with_code) {}
  explicit BadWeights(const std::string& damage) : BadWeights(Exit::no_valid_checkpoint, damage) {}
  Exit code;
};

/// How a number is stored: little-endian, as torch's storages and safetensors have them.
enum class StoredType { f64, f32, f16, bf16, i64, i32, i16, i8, u8, boolean };
std::size_t bytes_of(StoredType type);

/// A tensor of a file, and where its numbers are.
struct StoredWeights {
  TensorInfo info;
  StoredType type = StoredType::f32;
  Part storage;                        ///< in the file; may be shared with other tensors
  std::uint64_t first = 0;             ///< number of the storage
  std::vector<std::uint64_t> strides;  ///< in numbers, one a dimension
  std::optional<std::uint32_t> crc;    ///< CRC-32 of the storage, where the file has it
};

/// All of a file but its numbers.
struct WeightsIndex {
  std::string format = {}, section = {};
  std::vector<StoredWeights> tensors = {};
};

inline constexpr std::size_t most_weights = 16384, most_weight_dimensions = 32;
inline constexpr std::size_t longest_weight_name = 1024;
/// Of a pickle, or of the header of safetensors.
inline constexpr std::uint64_t most_weights_index = 16 << 20;

/// Strides of row-major numbers.
std::vector<std::uint64_t> row_major(std::span<const std::uint64_t> shape);
/// Throws BadWeights unless name and shape are within bounds and all numbers lie in the storage.
void expect_within_storage(const StoredWeights& tensor);

/// Reads the index of a file of any of the formats; none where it begins as none of them. Throws
/// BadWeights, and what `bytes` throws.
std::optional<WeightsIndex> read_weights_index(ByteSource& bytes);
/// What it is of each format, where `bytes` begins as that.
WeightsIndex read_safetensors(ByteSource& bytes);
WeightsIndex read_torch_zip(ByteSource& bytes);
WeightsIndex read_torch_legacy(ByteSource& bytes);
/// Whether `head`, the first bytes of a file, begins a file of any of the formats.
bool begins_weights(std::span<const std::uint8_t> head, std::uint64_t file_bytes);
inline constexpr std::size_t weights_head_bytes = 32;

/// Fills `values` with the numbers of a tensor of the index. Throws what `bytes` throws, and, where
/// `check` says so, BadWeights for a storage that does not fit its CRC-32.
void read_weights(ByteSource& bytes, const StoredWeights& tensor, std::span<float> values,
                  bool check = true);

}  // namespace ringtrain::io
