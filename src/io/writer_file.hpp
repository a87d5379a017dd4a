#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ringtrain/io/checkpoint.hpp"

namespace ringtrain {

/// A state to be written.
struct Snapshot {
  const StateLayout* layout = nullptr;
  CheckpointMetadata metadata;
  std::string run_id;
  std::vector<std::span<const float>> buffers;
};

struct WrittenCheckpoint {
  std::uint64_t bytes = 0;
  std::uint64_t state_hash = 0;
};

/// Writes a complete checkpoint into the empty `file` and makes its bytes durable. `direct`: the
/// file was opened with O_DIRECT. Throws Error; with Exit::not_finite for a NaN or infinite value.
WrittenCheckpoint write_checkpoint(int file, const Snapshot& snapshot);

}  // namespace ringtrain
