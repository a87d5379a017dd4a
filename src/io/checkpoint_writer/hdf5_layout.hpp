#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "ringtrain/base/file.hpp"
#include "ringtrain/io/checkpoint/checkpoint.hpp"

namespace ringtrain::io {

/// An HDF5 file without the tensors' bytes, made by libhdf5 in memory: `user_block` free bytes at
/// its head, one contiguous dataset a tensor, and the metadata as scalar datasets in the group
/// `metadata`. Touches no file system. Equal arguments give equal bytes. For the writer process
/// only: libhdf5 takes down processes in which it met errors.
class Hdf5Layout {
 public:
  /// Throws Error when HDF5 cannot hold these names or shapes.
  Hdf5Layout(const CheckpointMetadata& metadata, std::span<const TensorInfo> tensors,
             std::uint64_t user_block);

  /// Whether a new layout for `metadata` would differ in nothing but the metadata's values.
  bool fits(const CheckpointMetadata& metadata, std::uint64_t user_block) const;
  /// Replaces the metadata's values; fits() must hold.
  void fill(const CheckpointMetadata& metadata);

  /// A sparse memfd: HDF5's own bytes at their places, zeros elsewhere.
  int image() const { return image_.get(); }
  std::uint64_t user_block() const { return user_block_; }
  std::uint64_t bytes() const { return bytes_; }
  /// Where tensor i's bytes belong; 0 if it has none.
  std::uint64_t offset(std::size_t i) const { return offsets_[i]; }

 private:
  struct Place {
    std::uint64_t offset, bytes;
  };

  std::uint64_t user_block_;
  FileDescriptor image_;
  std::uint64_t bytes_ = 0;
  std::vector<std::uint64_t> offsets_;
  std::vector<Place> scalars_;
};

}  // namespace ringtrain::io
