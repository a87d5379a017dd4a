#pragma once
// Room `io/checkpoint`: the format of a checkpoint (docs/reference/checkpoint-format.md), read with
// distrust: sizes, names and hashes are checked before they are believed, and trouble of a network
// file system is waited for.
//
// Threads: an object belongs to one thread at a time. Not collective.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ringtrain::io {

/// A named fp32 array, row-major. The name is the path of its dataset in the file, by convention
/// `weights/conv1.weight`, `optimizer/momentum/conv1.weight`, `ema/...`, `statistics/...`; no name
/// may be the folder of another. The format is in docs/reference/checkpoint-format.md.
struct TensorInfo {
  std::string name;
  std::vector<std::uint64_t> shape;

  bool operator==(const TensorInfo&) const = default;
};

/// Elements of an array of this shape; throws Error when their bytes do not fit 64 bits.
std::uint64_t element_count(const TensorInfo& tensor);
/// `name [64,3,7,7]`
std::string describe(const TensorInfo& tensor);
/// Whether it holds a weight.
inline bool is_weight(const TensorInfo& tensor) { return tensor.name.starts_with("weights/"); }
/// Whether it holds a running mean or variance.
inline bool is_statistic(const TensorInfo& tensor) {
  return tensor.name.starts_with("statistics/");
}
/// Whether it holds the average of a weight or statistic over the steps.
inline bool is_average(const TensorInfo& tensor) { return tensor.name.starts_with("ema/"); }
/// The name within its kind: `fc.bias` of `weights/fc.bias`.
inline std::string without_folder(const std::string& name) {
  return name.substr(name.find('/') + 1);
}

/// Where a tensor lies in the trainer's flat buffers: floats `offset` .. of buffer `buffer`.
struct TensorPlace {
  TensorInfo info;
  std::size_t buffer = 0;
  std::size_t offset = 0;
};

/// The trainer's state as it lies in memory: a few flat fp32 buffers (parameters, optimizer slots,
/// EMA, BN statistics) and the tensors in them.
struct StateLayout {
  std::vector<std::size_t> buffers;  ///< floats of each
  std::vector<TensorPlace> tensors;  ///< in the order of the file's table
};

inline constexpr std::size_t most_unreadable = 16384;
/// As JSON, of input, network and class names together: what is longer stays out of the file.
inline constexpr std::size_t most_description = 1 << 20;

/// All of a checkpoint but its tensors. Equal states have equal metadata: nothing of host, time,
/// path or run is in it.
struct CheckpointMetadata {
  std::uint64_t step = 0;
  std::uint64_t epoch = 0;
  std::uint64_t position = 0;  ///< samples drawn since the start of training
  std::uint64_t seed = 0;      ///< keys every random number
  std::uint64_t world_size = 1;
  std::uint64_t global_batch = 0;
  std::string model{};
  std::uint64_t model_hash = 0;
  std::string config{};                  ///< JSON: the options that change the numbers
  std::string optimizer{};               ///< JSON: scalars of optimizer and schedule
  std::vector<std::uint64_t> buckets{};  ///< bounds of the gradient buckets, in floats
  std::string plans{};                   ///< JSON: choices of the backend that change rounding
  /// Samples of the training data that could not be read so far, the first most_unreadable of them.
  /// Not part of the state.
  std::vector<std::uint64_t> unreadable{};
  /// JSON: the training's best evaluation so far; empty: it keeps none. Not part of the state.
  std::string best{};
  bool is_best = false;  ///< whether that is of this step's weights
  // What the tensors are good for; empty in files that do not say it, and not part of the state.
  std::string input{};        ///< JSON: how an image becomes numbers
  std::string network{};      ///< the text of a model file
  std::string class_names{};  ///< class_names_text() of the training data

  bool operator==(const CheckpointMetadata&) const = default;
};

/// `names`, by label, as one text of UTF-8: a line each, where `\n` and `\\` stand for a newline
/// and a backslash in a name, and `\xNN` for a byte above 127 of a name that is not UTF-8.
std::string class_names_text(std::span<const std::string> names);
/// The names in such a text; none in an empty one.
std::vector<std::string> class_names_in(std::string_view text);

/// What two equal trainings share at equal steps: hash of tensors, step, epoch, position, seed,
/// optimizer scalars and model. `hashes` holds XXH64 of each tensor's bytes; the order does not
/// matter.
std::uint64_t state_hash(const CheckpointMetadata& metadata, std::span<const TensorInfo> tensors,
                         std::span<const std::uint64_t> hashes);

/// The name of a step's file: `step-0000000240.h5`.
std::string checkpoint_name(std::uint64_t step);
/// The name of the best step's file beside those. Retention does not count it, and no resume takes
/// it for the newest.
inline constexpr const char* best_name = "best.h5";

}  // namespace ringtrain::io
