#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "ringtrain/base/file_descriptor.hpp"
#include "ringtrain/io/checkpoint.hpp"

namespace ringtrain {

/// An HDF5 file without the tensors' bytes, made by libhdf5 in memory.
struct Hdf5Layout {
  FileDescriptor image;  ///< a sparse memfd: HDF5's own bytes at their places, zeros elsewhere
  std::uint64_t bytes = 0;
  std::vector<std::uint64_t> offsets;  ///< where each tensor's bytes belong; 0 for empty ones
};

/// Lays out a file with `user_block` free bytes at its head, one contiguous dataset a tensor and
/// the metadata as scalar datasets in the group `metadata`. Touches no file system. Equal arguments
/// give equal bytes. For the writer process only: libhdf5 crashes processes it shares with errors.
Hdf5Layout lay_out_hdf5(const CheckpointMetadata& metadata, std::span<const TensorInfo> tensors,
                        std::uint64_t user_block);

}  // namespace ringtrain
