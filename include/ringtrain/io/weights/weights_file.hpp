#pragma once
// Room `io/weights`: weights that others have published: files of safetensors and of torch.save(),
// zip or legacy stream. Read with distrust, as checkpoints are: nothing in such a file is executed,
// and sizes are checked before they are believed.
//
// Threads: an object belongs to one thread at a time. Not collective.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ringtrain/base/work_progress.hpp"
#include "ringtrain/io/checkpoint/checkpoint.hpp"

namespace ringtrain::io {

struct WeightsIndex;
class ByteSource;

/// Named tensors of a file of safetensors or torch.save(), opened for reading. Memory is bounded by
/// 256 MiB and eight times what the caller passes, whatever the file says. Every Error names the
/// file and what is wrong with it, in printable text.
class WeightsFile {
 public:
  /// Whether the file begins as one of these; false where it cannot be read.
  static bool is_one(const std::filesystem::path& path);

  /// Reads names, shapes and places. Throws Error(Exit::no_valid_checkpoint) for a damaged file,
  /// with Exit::incompatible_checkpoint for one that holds no state dictionary, or Python objects
  /// other than tensors, dictionaries, numbers and strings, and with Exit::storage where it cannot
  /// be read. `progress` hears of reads, outlives the object, and may be null.
  static WeightsFile open(const std::filesystem::path& path, WorkProgress* progress = nullptr);
  WeightsFile(WeightsFile&&) noexcept;
  WeightsFile& operator=(WeightsFile&&) noexcept;
  ~WeightsFile();

  const std::filesystem::path& path() const { return path_; }
  /// For the user: "safetensors", "torch's zip file", "torch's legacy file".
  std::string_view format() const;
  /// The key of the file's dictionary that holds the tensors, as "state_dict_ema"; empty: they lie
  /// at its top.
  const std::string& section() const;
  /// As they are in the file, in its order: names with their prefixes, integers too.
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  /// Fills `values`, of exactly the tensor's size, row-major whatever the strides of the file, as
  /// fp32 whatever its type. Throws Error(Exit::no_valid_checkpoint) where the storage does not fit
  /// its CRC-32, which zip files have.
  void read(std::size_t tensor, std::span<float> values) const;

 private:
  WeightsFile(std::filesystem::path path, std::unique_ptr<ByteSource> bytes, WeightsIndex index);

  std::filesystem::path path_;
  std::unique_ptr<ByteSource> bytes_;
  std::unique_ptr<WeightsIndex> index_;
  std::vector<TensorInfo> tensors_;
  mutable std::set<std::uint64_t> checked_;  // storages, by their place
};

}  // namespace ringtrain::io
