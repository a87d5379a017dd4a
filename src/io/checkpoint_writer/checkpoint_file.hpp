#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/checkpoint/checkpoint_index.hpp"
#include "io/checkpoint_writer/block_writer.hpp"
#include "io/checkpoint_writer/hdf5_layout.hpp"
#include "ringtrain/io/checkpoint/checkpoint.hpp"

namespace ringtrain::io {

/// A state to be written.
struct Snapshot {
  CheckpointMetadata metadata;
  std::string run_id, lineage;
  std::vector<std::span<const float>> buffers;
};

struct WrittenCheckpoint {
  std::uint64_t bytes = 0;
  std::uint64_t state_hash = 0;
};

/// Writes checkpoints of one layout into files, keeping what is the same in all of them.
class FileWriter {
 public:
  /// Throws Error when the format cannot hold the names or shapes.
  explicit FileWriter(const StateLayout& layout);

  /// Writes a complete checkpoint into the empty `file` and makes its bytes durable. Throws Error;
  /// with Exit::not_finite for a NaN or infinite value.
  WrittenCheckpoint write(int file, const Snapshot& snapshot);

 private:
  const Hdf5Layout& hdf5_for(const CheckpointMetadata& metadata);
  CheckpointIndex new_index(const Snapshot& snapshot, const Hdf5Layout& hdf5) const;
  void write_body(int file, const Snapshot& snapshot, const Hdf5Layout& hdf5,
                  CheckpointIndex& index);
  void write_head(int file, const CheckpointIndex& index);
  std::uint64_t state_hash_of(const CheckpointIndex& index) const;

  std::vector<TensorPlace> places_;
  std::vector<TensorInfo> infos_;
  std::optional<Hdf5Layout> hdf5_;
  BlockWriter blocks_;
};

}  // namespace ringtrain::io
